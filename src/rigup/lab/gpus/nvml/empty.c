/* libcuda.so.1 of the lab: a library with nothing in it. */
