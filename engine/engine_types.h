/* What all parts of engine.h speak of: its objects, and how a call is answered. */
#ifndef NRD_ENGINE_ENGINE_TYPES_H
#define NRD_ENGINE_ENGINE_TYPES_H

#include "engine/base/macros.h"
#include "engine/base/rendering.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NrdEngine NrdEngine;
typedef struct NrdTopic NrdTopic;
typedef struct NrdPartition NrdPartition;
typedef struct NrdProducer NrdProducer;
typedef struct NrdTopicProducer NrdTopicProducer;
typedef struct NrdReader NrdReader;

/* Called once with 0 or a negative errno. */
typedef void (*NrdDoneFn)(void *user_data, int error);

#endif
