"""What is asked of a figure, what was measured, and the table of them."""

from collections import namedtuple

# `bound` is the most a figure may be, or the least where `is_floor`; None: it is only stated.
Asked = namedtuple('Asked', 'bound unit is_floor')
# `measured` is None where it was skipped, and `remark` says why.
Row = namedtuple('Row', 'name asked measured remark')


def at_most(bound, unit):
    """Asked for: no more than that."""
    return Asked(bound, unit, False)


def at_least(bound, unit):
    """Asked for: no less than that."""
    return Asked(bound, unit, True)


def stated(unit):
    """Nothing is asked for."""
    return Asked(None, unit, False)


def verdict(row):
    """Whether what is asked for has been reached, in a word."""
    if row.measured is None:
        return 'skipped'
    if row.asked.bound is None:
        return ''
    good = (row.measured >= row.asked.bound if row.asked.is_floor
            else row.measured <= row.asked.bound)
    return 'yes' if good else 'NO'


def bound_text(asked):
    """What is asked for, in words."""
    if asked.bound is None:
        return ''
    return ('%s %g %s' % ('>=' if asked.is_floor else '<=', asked.bound, asked.unit)).strip()


def print_table(rows):
    """The table at the end."""
    form = '%-52s %12s %12s  %-8s %s'
    print(form % ('figure', 'asked', 'measured', 'reached', ''))
    for row in rows:
        measured = '-' if row.measured is None else '%.3g %s' % (row.measured, row.asked.unit)
        print(form % (row.name, bound_text(row.asked), measured.strip(), verdict(row), row.remark))
