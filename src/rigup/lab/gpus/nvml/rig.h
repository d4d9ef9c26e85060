/*
 * Where the stand-in's answers come from, on the machine:
 *   /etc/lab-gpus/rig     what GPUs the machine has: lines of "key value", keys of GPU 0 begin with "gpu0."
 *   /run/lab-gpus/loaded  the driver that the kernel has loaded, as /proc/driver/nvidia/version says it
 *   /run/lab-gpus/<key>   what has happened to them since the boot: a file whose content replaces the value of that key
 * A key that is in neither is a figure that the GPU does not have: NVML_ERROR_NOT_SUPPORTED.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef RIG
#define RIG "/etc/lab-gpus/rig"
#define STATE "/run/lab-gpus/"
#endif
#define LOADED STATE "loaded"
#define MOST_GPUS 64
#define LINE 512
#define DESCRIPTION (64 * 1024)

typedef int Return;
enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18,
    ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};

typedef struct { unsigned index; } *Device;
static struct { unsigned index; } devices[MOST_GPUS];
static unsigned device_count, initialised;

static int first_line(const char *path, char *line)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    int read = fgets(line, LINE, file) != NULL;
    fclose(file);
    if (read)
        line[strcspn(line, "\n")] = 0;
    return read;
}

/* The rig's description, read once by a process: cards change only while a machine is off. */
static const char *description(void)
{
    static char text[DESCRIPTION + 2];
    if (!text[0]) {
        FILE *file = fopen(RIG, "r");
        text[0] = '\n';
        text[file ? 1 + fread(text + 1, 1, DESCRIPTION, file) : 1] = 0;
        if (file)
            fclose(file);
    }
    return text;
}

/* The value of a key: from /run/lab-gpus if it is there, else from the rig's description. */
static int value_of(const char *key, char *value)
{
    char path[LINE + sizeof STATE], line[LINE];
    snprintf(path, sizeof path, STATE "%s", key);
    if (first_line(path, value))
        return 1;
    snprintf(line, sizeof line, "\n%s ", key);
    const char *found = strstr(description(), line);
    if (!found)
        return 0;
    found += strlen(line);
    snprintf(value, LINE, "%.*s", (int)strcspn(found, "\n"), found);
    return 1;
}

static const char *key_of(unsigned index, const char *name)
{
    static __thread char key[LINE];
    snprintf(key, sizeof key, "gpu%u.%s", index, name);
    return key;
}

static int has(unsigned index, const char *name)
{
    char value[LINE];
    return value_of(key_of(index, name), value);
}

/* What a GPU's memory is mapped from: it is private to a process, and its name shows in the process's /proc/PID/maps. */
#define MEMORY_OF_GPU "lab-gpu%u"

/* The bytes of a GPU that processes hold, of those whose mappings the caller may read. */
__attribute__((unused)) static unsigned long long held(unsigned index)
{
    char name[LINE], path[LINE], line[LINE];
    unsigned long long bytes = 0, from, to;
    DIR *processes = opendir("/proc");
    snprintf(name, sizeof name, "/memfd:" MEMORY_OF_GPU " ", index);
    for (struct dirent *each; processes && (each = readdir(processes));) {
        snprintf(path, sizeof path, "/proc/%.16s/maps", each->d_name);
        FILE *maps = each->d_name[0] >= '0' && each->d_name[0] <= '9' ? fopen(path, "r") : NULL;
        while (maps && fgets(line, sizeof line, maps))
            if (strstr(line, name) && sscanf(line, "%llx-%llx", &from, &to) == 2)
                bytes += to - from;
        if (maps)
            fclose(maps);
    }
    if (processes)
        closedir(processes);
    return bytes;
}

static Return check(Device device)
{
    if (!initialised)
        return UNINITIALIZED;
    for (unsigned index = 0; index < device_count; index++)
        if ((void *)device == &devices[index]) {
            while (has(index, "hang"))
                sleep(1);
            return has(index, "lost") ? GPU_IS_LOST : SUCCESS;
        }
    return INVALID_ARGUMENT;
}

static Return text(Device device, const char *name, char *into)
{
    Return checked = check(device);
    if (checked != SUCCESS)
        return checked;
    return value_of(key_of(device->index, name), into) ? SUCCESS : NOT_SUPPORTED;
}

static Return wide(Device device, const char *name, unsigned long long *into)
{
    char value[LINE];
    Return found = text(device, name, value);
    if (found == SUCCESS && into)
        *into = strtoull(value, NULL, 0);
    return found == SUCCESS && !into ? INVALID_ARGUMENT : found;
}

__attribute__((unused)) static Return number(Device device, const char *name, unsigned *into)
{
    unsigned long long value;
    Return found = wide(device, name, &value);
    if (found == SUCCESS && into)
        *into = (unsigned)value;
    return found == SUCCESS && !into ? INVALID_ARGUMENT : found;
}

static Return copy(const char *value, char *into, unsigned size)
{
    if (strlen(value) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(into, value);
    return SUCCESS;
}

__attribute__((unused)) static Return text_copy(Device device, const char *name, char *into, unsigned size)
{
    char value[LINE];
    Return found = text(device, name, value);
    return found == SUCCESS ? copy(value, into, size) : found;
}

/* Notes what was set, until the machine boots again. */
static Return set(Device device, const char *name, unsigned value)
{
    char path[LINE + sizeof STATE];
    snprintf(path, sizeof path, STATE "%s", key_of(device->index, name));
    FILE *file = fopen(path, "w");
    if (!file)
        return UNKNOWN;
    fprintf(file, "%u\n", value);
    return fclose(file) ? UNKNOWN : SUCCESS;
}
