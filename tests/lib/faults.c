#include "tests/lib/faults.h"

struct eb_faults eb_faults;

static _Thread_local unsigned allocation_count;
static _Thread_local unsigned failing_allocation;

void eb_faults_fail_allocation(unsigned number)
{
    allocation_count = 0;
    failing_allocation = number;
}

unsigned eb_faults_allocation_count(void)
{
    return allocation_count;
}

bool eb_faults_refuse_allocation(void)
{
    allocation_count++;
    return allocation_count == failing_allocation;
}

void eb_faults_disarm(void)
{
    eb_faults = (struct eb_faults){0};
    eb_faults_fail_allocation(0);
}

int eb_faults_tear_down(void **state)
{
    (void)state;
    eb_faults_disarm();
    return 0;
}
