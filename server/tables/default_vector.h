/* The default vector of a table: from the numbers in model.yaml to values of T.
 * Thread: any. Memory: the values are on the heap. */
#pragma once

#include "server/tables/planned_table.h"

/* Sets *vector to the row_elements values of the planned table's default_vector, which must be
 * given. A single number stands for all of them. For a floating-point T, the f64 nearest to the
 * number is rounded to T. Returns false if the count of numbers is neither one nor row_elements, or
 * if a number is not in the range of T. *failure then names the table and what is expected and, for
 * a wrong number, its position and text. */
bool eb_default_vector_read(
    const struct eb_planned_table *table, void **vector, struct eb_failure *failure);
