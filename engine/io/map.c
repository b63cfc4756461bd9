/* Mapped files that may shrink or rot behind our back.
 *
 * A look at a page of a mapping that the file does not have any more, or that the disk cannot read, raises SIGBUS. The
 * handler here puts a page of zeros in its place and returns, so that the look goes on and finds zeros; the reader's
 * checksum tells that they are not what was written. (systemd's journal does the same.) A SIGBUS for any other reason
 * does what it would have done without us.
 *
 * The handler runs on the thread that looked, at any instruction of it: it takes no lock and allocates nothing. It finds
 * our mappings in a list of slots that only grows; a slot's start is written last and cleared first, so that a range is
 * never seen half. A range that is looked at is mapped, and no thread unmaps what another one reads. */
#include "engine/io/io.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS_PER_CHUNK 512
#define TAKEN ((uintptr_t)1) /* no mapping begins there */

typedef struct Slot {
    _Atomic uintptr_t start; /* 0: free */
    _Atomic size_t size;
} Slot;

typedef struct Chunk {
    Slot slots[SLOTS_PER_CHUNK];
    struct Chunk *_Atomic next; /* never freed */
} Chunk;

static Chunk first_chunk;
static struct sigaction before; /* written once, before the handler is in force */
static uintptr_t page_bytes;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_ours(uintptr_t addr)
{
    for (Chunk *chunk = &first_chunk; chunk != NULL; chunk = atomic_load(&chunk->next)) {
        for (unsigned i = 0; i < SLOTS_PER_CHUNK; i++) {
            uintptr_t start = atomic_load(&chunk->slots[i].start);
            size_t size = atomic_load(&chunk->slots[i].size);
            /* the slot may have become another mapping's between the two looks */
            if (start > TAKEN && addr >= start && addr - start < size && atomic_load(&chunk->slots[i].start) == start)
                return true;
        }
    }
    return false;
}

static void on_sigbus(int signo, siginfo_t *info, void *context)
{
    int saved = errno;

    (void)context;
    uintptr_t addr = (uintptr_t)info->si_addr;
    if (info->si_code > 0 && is_ours(addr)) {
        uintptr_t page = addr & ~(page_bytes - 1);
        if (mmap((void *)page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
            errno = saved;
            return;
        }
    }
    /* not ours, or beyond help */
    sigaction(SIGBUS, &before, NULL);
    raise(signo);
    errno = saved;
}

static void install(void)
{
    struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_RESTART };
    sigemptyset(&action.sa_mask);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    (void)sigaction(SIGBUS, NULL, &before); /* cannot fail: a valid signal */
    (void)sigaction(SIGBUS, &action, NULL);
}

static Slot *take_slot(void)
{
    for (Chunk *chunk = &first_chunk;;) {
        for (unsigned i = 0; i < SLOTS_PER_CHUNK; i++) {
            uintptr_t is_free = 0;
            if (atomic_compare_exchange_strong(&chunk->slots[i].start, &is_free, TAKEN))
                return &chunk->slots[i];
        }
        Chunk *next = atomic_load(&chunk->next);
        if (next == NULL) {
            Chunk *added = g_new0(Chunk, 1);
            if (atomic_compare_exchange_strong(&chunk->next, &next, added))
                next = added;
            else
                g_free(added); /* another thread was faster: next is its */
        }
        chunk = next;
    }
}

static void free_slot(uintptr_t start)
{
    for (Chunk *chunk = &first_chunk; chunk != NULL; chunk = atomic_load(&chunk->next)) {
        for (unsigned i = 0; i < SLOTS_PER_CHUNK; i++) {
            if (atomic_load(&chunk->slots[i].start) == start) {
                atomic_store(&chunk->slots[i].start, 0);
                return;
            }
        }
    }
}

int nrd_io_map(int fd, size_t size, const void **ret_addr)
{
    void *addr = NULL;

    if (nrd_io->map == NULL)
        return -ENODEV;
    pthread_once(&once, install);
    Slot *slot = take_slot();
    int r = nrd_io->map(fd, size, &addr);
    if (r < 0) {
        atomic_store(&slot->start, 0);
        return r;
    }
    atomic_store(&slot->size, size);
    atomic_store(&slot->start, (uintptr_t)addr);
    *ret_addr = addr;
    return 0;
}

void nrd_io_unmap(const void *addr, size_t size)
{
    free_slot((uintptr_t)addr); /* first: the range may be somebody else's as soon as it is unmapped */
    (void)nrd_io->unmap((void *)(uintptr_t)addr, size); /* can only fail for a range that is not one */
}
