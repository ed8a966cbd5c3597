#include "tests/unit/route/flip_world.h"

void flip_world_init(struct flip_world *world, size_t count)
{
    *world = (struct flip_world){.input = {.count = count,
                                     .has_all_answers = true,
                                     .settle_until_ns = EB_FLIP_NEVER,
                                     .now_ns = 100 * SECOND,
                                     .next_wait_ns = NEXT_WAIT_NS}};
    for (size_t i = 0; i < 4; i++) {
        world->versions[i] =
            (struct eb_flip_version){.number = i + 1, .digest = 10 + i, .lineage = "l"};
        world->fit_since_ns[i] = EB_FLIP_NEVER;
    }
}

void flip_world_step(struct flip_world *world)
{
    struct eb_flip_version list[5];
    struct eb_flip_input input = world->input;
    size_t count = 0;
    for (size_t i = 0; i < world->input.count; i++) {
        if (world->kept.number == world->versions[i].number) {
            list[count++] = world->kept;
        }
        list[count++] = world->versions[i];
    }
    input.versions = list;
    input.count = count;
    eb_flip_step(&world->flip, &input);
    if (world->flip.served != world->kept.number ||
        world->flip.served_digest != world->kept.digest) {
        world->kept.number = 0;
    }
}

void flip_world_pass(struct flip_world *world, uint64_t ns)
{
    world->input.now_ns += ns;
    flip_world_step(world);
}

void flip_world_complete(struct flip_world *world, uint64_t number, bool is_complete)
{
    world->versions[number - 1].is_complete = is_complete;
    world->versions[number - 1].has_replicas = is_complete;
    flip_world_step(world);
}

void flip_world_replace(struct flip_world *world, uint64_t number)
{
    struct eb_flip_version *version = &world->versions[number - 1];
    if (world->flip.served == number && world->kept.number == 0) {
        world->kept = *version;
    }
    version->digest += 10;
    version->is_complete = false;
    flip_world_step(world);
}
