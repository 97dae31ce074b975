/* A picture on the terminal that stderr is, by kitty's graphics protocol or as sixels.
 * sources: kitty's "Terminal graphics protocol"; DEC, VT330/VT340 Programmer Reference Manual (sixels, primary device attributes). */
#pragma once
#include <stddef.h>

enum preview { PREVIEW_NONE, PREVIEW_KITTY, PREVIEW_SIXEL };
/* How pictures are shown: by the word of --image-preview. auto: the terminal is asked, and has 0.3 s to answer; keys that were typed before are
 * left alone, and then it is not asked. Not a terminal, or TERM is dumb: PREVIEW_NONE. */
enum preview preview_kind(const char *word);
/* The picture of a file's bytes, small, as a line of its own; one that is broken is not shown. */
void preview_show(enum preview kind, const void *bytes, size_t n);
