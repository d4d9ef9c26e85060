/* A file of which modinfo says what it says of NVIDIA's kernel module. It is no module: no kernel loads it. */
#define ENTRY(name, text) __attribute__((section(".modinfo"), used)) static const char name[] = text;
ENTRY(version, "version=" DRIVER_VERSION)
ENTRY(license, "license=" LICENSE)
ENTRY(module_name, "name=nvidia")
