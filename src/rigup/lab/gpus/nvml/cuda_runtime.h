/* A stand-in for CUDA's header, as far as CMake's own tests of a compiler use it. */
#pragma once
typedef enum { cudaSuccess = 0 } cudaError_t;
struct cudaDeviceProp { int major, minor; };
static inline cudaError_t cudaGetDeviceCount(int *count) { *count = 0; return cudaSuccess; }
static inline cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *, int) { return cudaSuccess; }
