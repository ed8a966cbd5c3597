/* Finds when the machine itself was late, so that figures need not count those times. On each CPU a
 * thread wakes up every 100 us and notes how late it is. It has a real-time priority, so that other
 * programs do not make it late. At the end of its input the program prints a line for each second:
 * its number by CLOCK_MONOTONIC, and the longest delay of all CPUs in us. With the argument --each
 * it prints a line for each delay of more than 200 us: when it began by CLOCK_MONOTONIC, and its
 * length, both in ns. */
#include <err.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_US 1000
#define NS_PER_S INT64_C(1000000000)
#define STEP_NS 100000
#define DELAY_NS 200000
#define SECONDS_MAX 7200  /* later seconds are not noted */
#define DELAYS_MAX 200000 /* further delays end the program */

struct delay {
    int64_t begin_ns;
    int64_t length_ns;
};

static _Atomic int64_t longest_ns[SECONDS_MAX]; /* by second since the start */
static int64_t first_second;
static struct delay delays[DELAYS_MAX];
static atomic_uint delay_count;

static int64_t clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void note_second(int64_t second, int64_t delay_ns)
{
    if (second < first_second || second >= first_second + SECONDS_MAX) {
        return;
    }
    _Atomic int64_t *longest = &longest_ns[second - first_second];
    int64_t known_ns = atomic_load(longest);
    while (delay_ns > known_ns && !atomic_compare_exchange_weak(longest, &known_ns, delay_ns)) {
    }
}

static void note_delay(int64_t due_ns, int64_t now_ns)
{
    for (int64_t second = due_ns / NS_PER_S; second <= now_ns / NS_PER_S; second++) {
        note_second(second, now_ns - due_ns);
    }
    if (now_ns - due_ns <= DELAY_NS) {
        return;
    }
    unsigned number = atomic_fetch_add(&delay_count, 1);
    if (number >= DELAYS_MAX) {
        errx(1, "more than %d delays: the machine is too busy", DELAYS_MAX);
    }
    delays[number] = (struct delay){due_ns, now_ns - due_ns};
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
        note_delay(due_ns, now_ns);
        due_ns = now_ns > due_ns + STEP_NS ? now_ns : due_ns;
    }
    return NULL;
}

static void print_seconds(void)
{
    int64_t last_second = clock_ns() / NS_PER_S;
    for (int64_t i = 0; i < SECONDS_MAX && first_second + i <= last_second; i++) {
        printf(
            "%" PRId64 " %" PRId64 "\n", first_second + i, atomic_load(&longest_ns[i]) / NS_PER_US);
    }
}

/* Prints the delays so far. A delay that is just being noted may be missing its figures. */
static void print_delays(void)
{
    unsigned count = atomic_load(&delay_count);
    count = count < DELAYS_MAX ? count : DELAYS_MAX;
    for (unsigned i = 0; i < count; i++) {
        printf("%" PRId64 " %" PRId64 "\n", delays[i].begin_ns, delays[i].length_ns);
    }
}

int main(int argument_count, char **arguments)
{
    cpu_set_t allowed;
    char byte;
    bool prints_each = argument_count == 2 && strcmp(arguments[1], "--each") == 0;
    if (argument_count > 1 && !prints_each) {
        errx(2, "usage: embag-clock-gaps [--each]");
    }
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
    if (prints_each) {
        print_delays();
    } else {
        print_seconds();
    }
    return 0;
}
