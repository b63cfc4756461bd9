/* See park.h. Who owns a parked read: the engine, from nrd_source_take on, until it calls `deliver`; or the interrupt
 * callback, when nrd_source_cancel says so. The owner replies and frees.
 *
 * libfuse calls the interrupt callback with the request's lock held, possibly from within fuse_req_interrupt_func; so
 * `deliver` unregisters it first: after that it neither runs nor will. The callback is registered before the take: a
 * cancel that comes in between is kept by the waiter and ends the take. */
#include "fs/park.h"

#include "fs/source.h"

#include <errno.h>

typedef struct Park {
    fuse_req_t req;
    NrdHandle *handle; /* referenced */
    size_t size;
    int timeout_error;
    NrdParkFn done;
    NrdWaiter waiter;
} Park;

static void free_park(Park *park)
{
    nrd_handle_unref(park->handle);
    g_free(park);
}

static void deliver(void *user_data, int error, const NrdDelivery *delivery)
{
    Park *park = user_data;
    fuse_req_interrupt_func(park->req, NULL, NULL);
    if (error == -ETIMEDOUT || error == -EAGAIN) {
        if (park->timeout_error == 0)
            nrd_reply_empty(park->req);
        else
            nrd_reply_error(park->req, park->timeout_error);
    } else {
        park->done(park->handle, park->req, park->size, error, delivery);
    }
    free_park(park);
}

static void interrupted(fuse_req_t req, void *user_data)
{
    Park *park = user_data;
    if (!nrd_source_cancel(park->handle, &park->waiter))
        return;
    fuse_reply_err(req, EINTR);
    free_park(park);
}

void nrd_park_read(NrdHandle *handle, fuse_req_t req, size_t size, int64_t wait_ms, int timeout_error, NrdParkFn done)
{
    Park *park = g_new0(Park, 1);
    park->req = req;
    park->handle = nrd_handle_ref(handle);
    park->size = size;
    park->timeout_error = timeout_error;
    park->done = done;
    nrd_waiter_init(&park->waiter);
    fuse_req_interrupt_func(req, interrupted, park);
    nrd_handle_ref(handle); /* park may be gone before the call returns */
    nrd_source_take(handle, &park->waiter, wait_ms, deliver, park);
    nrd_handle_unref(handle);
}
