/* Finds the seconds in which the machine itself was late, so that figures need not count them. On
 * each CPU a thread wakes up every 100 us and notes how late it is. It has a real-time priority, so
 * that other programs do not make it late. At the end of its input the program prints a line for
 * each second: its number by CLOCK_MONOTONIC, and the longest delay of all CPUs in us. */
#include <err.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_US 1000
#define NS_PER_S INT64_C(1000000000)
#define STEP_NS 100000
#define SECONDS_MAX 7200 /* later seconds are not noted */

static _Atomic int64_t longest_ns[SECONDS_MAX]; /* by second since the start */
static int64_t first_second;

static int64_t clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void note_delay(int64_t second, int64_t delay_ns)
{
    if (second < first_second || second >= first_second + SECONDS_MAX) {
        return;
    }
    _Atomic int64_t *longest = &longest_ns[second - first_second];
    int64_t known_ns = atomic_load(longest);
    while (delay_ns > known_ns && !atomic_compare_exchange_weak(longest, &known_ns, delay_ns)) {
    }
}

/* Wakes up again and again on the CPU whose number it gets. */
static void *run_probe(void *argument)
{
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET((size_t)(uintptr_t)argument, &cpu);
    struct sched_param priority = {.sched_priority = 1};
    if (sched_setaffinity(0, sizeof cpu, &cpu) != 0 ||
        pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) != 0) {
        errx(1, "no real-time thread on CPU %zu: CAP_SYS_NICE is missing",
            (size_t)(uintptr_t)argument);
    }
    int64_t due_ns = clock_ns();
    for (;;) {
        due_ns += STEP_NS;
        struct timespec due = {due_ns / NS_PER_S, due_ns % NS_PER_S};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        int64_t now_ns = clock_ns();
        for (int64_t second = due_ns / NS_PER_S; second <= now_ns / NS_PER_S; second++) {
            note_delay(second, now_ns - due_ns);
        }
        due_ns = now_ns > due_ns + STEP_NS ? now_ns : due_ns;
    }
    return NULL;
}

int main(void)
{
    cpu_set_t allowed;
    char byte;
    first_second = clock_ns() / NS_PER_S;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        err(1, "sched_getaffinity");
    }
    for (uintptr_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        pthread_t thread;
        if (CPU_ISSET(cpu, &allowed) &&
            pthread_create(&thread, NULL, run_probe, (void *)cpu) != 0) {
            errx(1, "cannot create a thread");
        }
    }
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    int64_t last_second = clock_ns() / NS_PER_S;
    for (int64_t i = 0; i < SECONDS_MAX && first_second + i <= last_second; i++) {
        printf(
            "%" PRId64 " %" PRId64 "\n", first_second + i, atomic_load(&longest_ns[i]) / NS_PER_US);
    }
    return 0;
}
