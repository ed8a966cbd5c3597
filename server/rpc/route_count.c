#include "server/rpc/route_count.h"

#include "server/formats/part_of.h"
#include "server/route/leg_link.h"

struct eb_route_counts *eb_route_count(const struct eb_leg_link *link)
{
    uint32_t peers_max = eb_leg_link_peer_count(link);
    struct eb_route_counts *counts = eb_route_counts_make(peers_max);
    if (!counts) {
        return NULL;
    }
    for (uint32_t part = 0; part < EB_PARTS_MAX; part++) {
        eb_leg_link_count(link, part, &counts->rows[eb_route_row(part)]);
    }
    counts->totals = eb_leg_link_totals(link);
    for (uint32_t i = 0; i < peers_max; i++) {
        counts->peer_count +=
            eb_leg_link_describe_peer(link, i, &counts->peers[counts->peer_count]);
    }
    return counts;
}
