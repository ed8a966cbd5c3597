#include "server/net/turn.h"

void eb_turn_init(struct eb_turn *turn, uint64_t turn_ns)
{
    *turn = (struct eb_turn){.turn_ns = turn_ns, .read_bytes = EB_TURN_READ_FIRST};
}

void eb_turn_leave(struct eb_turn *turn)
{
    turn->spent_ns += turn->seen_ns - turn->begun_ns;
    turn->begun_ns = 0;
    turn->seen_ns = 0;
}

void eb_turn_enter(struct eb_turn *turn, struct eb_turn_reader *reader, uint64_t now_ns)
{
    if (reader->turn != turn) {
        *reader = (struct eb_turn_reader){turn, now_ns};
    }
    turn->is_alone = now_ns - reader->since_ns >= EB_TURN_ALONE_NS;
}

static uint64_t length_ns(const struct eb_turn *turn)
{
    return (turn->turn_ns << turn->is_alone) * (turn->is_inside ? EB_TURN_INSIDE : 1);
}

bool eb_turn_look(struct eb_turn *turn, uint64_t now_ns)
{
    if (turn->begun_ns == 0) {
        turn->begun_ns = now_ns;
    }
    turn->seen_ns = now_ns;
    turn->is_over = turn->is_over || turn->spent_ns + now_ns - turn->begun_ns >= length_ns(turn);
    return turn->is_over;
}

void eb_turn_adapt(struct eb_turn *turn, bool is_full)
{
    const uint64_t taken_ns = turn->seen_ns - turn->begun_ns;
    if (turn->is_over && turn->read_bytes > EB_TURN_READ_MIN) {
        turn->read_bytes /= 2;
    } else if (is_full && taken_ns < length_ns(turn) / 4 && turn->read_bytes < EB_TURN_READ_MAX) {
        turn->read_bytes *= 2;
    }
}

void eb_turn_renew(struct eb_turn *turn)
{
    *turn = (struct eb_turn){
        .turn_ns = turn->turn_ns, .read_bytes = turn->read_bytes, .is_alone = turn->is_alone};
}
