/* Items of a folder (disk.h) that threads of their own read and check while what was read before is copied on: a thread reads some GB/s,
 * a link to a card takes 50.
 *
 * Items are begun and taken in one order, each into the next of n areas, which go round. The memory is the caller's. */
#pragma once
#include "cache/disk.h"

struct read_ahead;
/* room[n_area][bytes]; n_thread at least 1. errors: INFER_E_MEMORY */
enum infer_status read_ahead_open(struct read_ahead **out, struct disk *d, unsigned char *room, size_t bytes,
                                  int n_area, int n_thread);
void read_ahead_close(struct read_ahead *r);
/* Items that were begun and not taken yet: fewer than n_area. */
int read_ahead_n(const struct read_ahead *r);
/* The area that the next item which begins, or is taken, goes into or is in. */
int read_ahead_next(const struct read_ahead *r);
int read_ahead_first(const struct read_ahead *r);
/* The item's n bytes, at most an area, and its ids, at most READ_AHEAD_IDS, which are copied. */
enum { READ_AHEAD_IDS = 64 };
void read_ahead_begin(struct read_ahead *r, const struct disk_item *item, size_t n);
/* Waits for the oldest one; false: it was not there. Its area keeps the bytes until an item begins in it. */
bool read_ahead_take(struct read_ahead *r);
