/* Reading ahead of who reads the frames of a segment in order: a thread reads and checks what follows behind the frames that
 * the reader has in its window, while these are given out. A frame may be megabytes long, and to read, check and unpack it
 * takes as long as to give out all that is in it.
 *
 * What is loaded is checked like every frame, and is taken only for the very frame that is wanted, of an index that has not
 * changed since. It is a frame up to 8 MiB, stored and unpacked, or a window of 1 MiB of shorter ones. At most 16 readers at
 * a time hold memory for it, each until it closes, comes to the end, or has not gone on for some seconds; others load what
 * they need when they need it, and so does everybody when there is no thread to be had.
 *
 * One thread works for all, one load after another, and sleeps when there is none. It begins with the first reader that asks
 * and ends with the last. Nobody waits for a turn: who needs a frame that is only in line loads it, and for one that is being
 * loaded waits a moment at most. So a disk that hangs under one log keeps the others from being read ahead, not from being
 * read. On a machine that is busy with others' work the thread comes too late; then it is asked more rarely. */
#ifndef NRD_LOG_FRAME_AHEAD_H
#define NRD_LOG_FRAME_AHEAD_H

#include "engine/base/macros.h"
#include "engine/log/frames/frame_reader.h"
#include "engine/log/state/state.h"

/* One reader's; one thread at a time. */
typedef struct NrdFrameAhead NrdFrameAhead;

/* Whose frames. The segment is held by who asks, as long as it is asked for. */
typedef struct NrdFrameSource {
    NrdLog *log;
    NrdSegment *segment;
    uint64_t version; /* of its index, before the reader read what it holds */
} NrdFrameSource;

/* Asks for what follows behind the window of reader, which has a frame of source loaded; once for each window. *ahead is
 * NULL at first, and stays NULL while there is nothing to ask for, or no thread. Memory only; the log and source stay until
 * it is freed. */
void nrd_frame_ahead_ask(NrdFrameAhead **ahead, const NrdFrameSource *source, const NrdFrameReader *reader);

/* Whether the frame that is wanted (fd is not looked at) lies ready: then reader holds it, as if it had loaded it. Takes
 * NULL. Waits a moment when it is being loaded. */
bool nrd_frame_ahead_take(NrdFrameAhead *ahead, const NrdFrameSource *source, const NrdFrameWant *want,
                          NrdFrameReader *reader) NRD_MUST_CHECK;

/* Gives the memory back: nothing will be wanted soon. Does not wait; what is being loaded goes a little later. Takes NULL. */
void nrd_frame_ahead_rest(NrdFrameAhead *ahead);

/* Gives everything back; waits for a load that is under way, as long as the disk takes for it. Takes NULL. */
void nrd_frame_ahead_free(NrdFrameAhead *ahead);

/* The same, without waiting: what is being loaded is left as it is, for another time. Takes the address of NULL. */
void nrd_frame_ahead_drop(NrdFrameAhead **ahead);

/* For tests: waits until nothing is on its way; whether something lies ready. Takes NULL. */
bool nrd_frame_ahead_settle(NrdFrameAhead *ahead);

/* For tests: how many readers hold memory; and sets how long one keeps it that does not go on (0: as it was). */
unsigned nrd_frame_ahead_n_holders(void);
void nrd_frame_ahead_set_keep_ms(unsigned keep_ms);

#endif
