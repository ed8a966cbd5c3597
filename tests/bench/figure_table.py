"""Figures with their targets and measurements, and the table of them."""

from collections import namedtuple

# A target: `bound` is the maximum of a figure, or the minimum if `is_floor`; None: no target.
Asked = namedtuple('Asked', 'bound unit is_floor')
# A line of the table. `measured` is None if the figure was skipped; `remark` then says why.
Row = namedtuple('Row', 'name asked measured remark')


def at_most(bound, unit):
    """Returns the target of at most `bound`."""
    return Asked(bound, unit, False)


def at_least(bound, unit):
    """Returns the target of at least `bound`."""
    return Asked(bound, unit, True)


def stated(unit):
    """Returns the unit of a figure without a target."""
    return Asked(None, unit, False)


def verdict(row):
    """Returns one word on whether the target was reached; '' without a target."""
    if row.measured is None:
        return 'skipped'
    if row.asked.bound is None:
        return ''
    good = (row.measured >= row.asked.bound if row.asked.is_floor
            else row.measured <= row.asked.bound)
    return 'yes' if good else 'NO'


def bound_text(asked):
    """Returns the text of a target."""
    if asked.bound is None:
        return ''
    return ('%s %g %s' % ('>=' if asked.is_floor else '<=', asked.bound, asked.unit)).strip()


def print_table(rows):
    """Prints the table at the end of a run."""
    form = '%-52s %12s %12s  %-8s %s'
    print(form % ('figure', 'target', 'measured', 'reached', ''))
    for row in rows:
        measured = '-' if row.measured is None else '%.3g %s' % (row.measured, row.asked.unit)
        print(form % (row.name, bound_text(row.asked), measured.strip(), verdict(row), row.remark))
