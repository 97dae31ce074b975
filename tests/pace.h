/* How much of what a test goes through one by one: all of it, under sanitizers, which make it ten times as slow, every nth. */
#pragma once
#ifdef INFER_SANITIZED
#define EVERY(n) (n)
#else
#define EVERY(n) 1
#endif
