/* A wall clock that is off by what a file says, for the processes that this library is preloaded
 * into. CHAOS_CLOCK names the file: one int64 of this machine, in seconds. Monotonic clocks stay.
 *
 * Waits until a time of the wall clock see its jumps as well: they wait in slices by the monotonic
 * clock and look again after each. The end of a slice is a spurious wake-up to a condition variable
 * (the lock was given up meanwhile, so only the caller can tell whether its condition holds now).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS 100000000L
#define SECOND_NS 1000000000L
#define MONOTONIC_CONDITION 2u /* bit of __wrefs, sysdeps/nptl/bits/thread-shared-types.h */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static const int64_t right = 0;
static const volatile int64_t *off_s = &right;

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *off_s, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        off_s = mapped;
    close(file);
}

static int true_time(clockid_t clock, struct timespec *at)
{
    static __typeof__(&clock_gettime) next;
    if (!next)
        next = NEXT(clock_gettime);
    return next(clock, at);
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int failed = true_time(clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *off_s;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *at, int base)
{
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, at) ? base : 0;
}

static int is_over(const struct timespec *deadline)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > deadline->tv_sec
        || (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec);
}

/* The monotonic time at which to look again for the end of a wait by the wall clock. */
static struct timespec slice_until(const struct timespec *deadline)
{
    struct timespec now, slice;
    clock_gettime(CLOCK_REALTIME, &now);
    true_time(CLOCK_MONOTONIC, &slice);
    long left = SLICE_NS;
    if (deadline->tv_sec - now.tv_sec < 2)
        left = (deadline->tv_sec - now.tv_sec) * SECOND_NS + deadline->tv_nsec - now.tv_nsec;
    left = left < 0 ? 0 : left < SLICE_NS ? left : SLICE_NS;
    slice.tv_sec += (slice.tv_nsec + left) / SECOND_NS;
    slice.tv_nsec = (slice.tv_nsec + left) % SECOND_NS;
    return slice;
}

int pthread_cond_clockwait(
    pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
    static __typeof__(&pthread_cond_clockwait) next;
    if (!next)
        next = NEXT(pthread_cond_clockwait);
    if (clock != CLOCK_REALTIME)
        return next(condition, mutex, clock, until);
    struct timespec slice = slice_until(until);
    int failed = next(condition, mutex, CLOCK_MONOTONIC, &slice);
    return failed == ETIMEDOUT && !is_over(until) ? 0 : failed;
}

int pthread_cond_timedwait(
    pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
    const struct timespec *restrict until)
{
    int monotonic = condition->__data.__wrefs & MONOTONIC_CONDITION;
    clockid_t clock = monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    return pthread_cond_clockwait(condition, mutex, clock, until);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
    for (;;) {
        struct timespec slice = slice_until(until);
        int failed = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &slice);
        if (failed != ETIMEDOUT || is_over(until))
            return failed;
    }
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
    for (;;) {
        struct timespec slice = slice_until(until);
        int failed = sem_clockwait(semaphore, CLOCK_MONOTONIC, &slice);
        if (!failed || errno != ETIMEDOUT || is_over(until))
            return failed;
    }
}
