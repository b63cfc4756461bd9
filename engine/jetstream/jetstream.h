/* The engine whose records are in NATS JetStream: what open.c sees of this folder.
 *
 * What is where: the record of a topic, with its settings, owner and modes, is a value in a key-value bucket, changed by
 * comparing its revision; a partition is a stream, whose messages are its records (offset = sequence - 1); its consumers are
 * one durable pull consumer, whose acknowledgements are the frontier. Several daemons on several machines may mount the same
 * servers. What an acknowledgement is worth, and what has no meaning here, is in docs/scale-out.md. */
#ifndef NRD_ENGINE_JETSTREAM_JETSTREAM_H
#define NRD_ENGINE_JETSTREAM_JETSTREAM_H

#include "engine/table.h"

/* As nrd_engine_open. Blocks for seconds while a cluster is starting. */
typeof(nrd_engine_open) nrd_js_engine_open;

#endif
