/* Pooling in the grpc++ peer: with a plain loop, with our kernels, or with FBGEMM's.
 * Thread: any number may pool at once. Memory: each thread keeps its own buffers. */
#pragma once

#include "tests/bench/grpcpp_tables.h"
#include "tests/bench/peer_kernels.h"

#include <memory>
#include <vector>

class PeerPooling
{
  public:
    virtual ~PeerPooling() = default;
    // Pools the queries of one request. Returns false if an offset or an index is out of range.
    virtual bool Run(const std::vector<eb_peer_query> &queries) const = 0;
};

// Returns the pooling for a mode: plain, kernels or fbgemm. Returns nullptr for other modes, and
// for fbgemm in a build without it.
std::unique_ptr<PeerPooling> PeerMakePooling(const std::string &mode, const PeerTables &tables);
