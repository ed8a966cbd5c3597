#include "tests/bench/fbgemm_peer.h"

#include <fbgemm/FbgemmEmbedding.h>
#include <fbgemm/Types.h>
#include <functional>
#include <new>

using Run = std::function<bool(const eb_fbgemm_call *, std::uint64_t)>;

struct eb_fbgemm_kernel {
    Run run;
};

namespace
{
// Generated code leaves the upper halves of vector registers dirty, which would slow down all SSE
// code after it.
inline void CleanRegisters()
{
#if defined(__x86_64__)
    asm volatile("vzeroupper" ::: "memory");
#endif
}

constexpr int kPrefetchRows = 16; // FBGEMM's default

template <typename Kernel, typename Row, typename Out> auto Bind(Kernel kernel)
{
    return [kernel](const eb_fbgemm_call *calls, std::uint64_t call_count) {
        bool good = true;
        for (std::uint64_t i = 0; i < call_count; i++) {
            const eb_fbgemm_call &call = calls[i];
            good &= kernel(static_cast<std::int64_t>(call.bag_count),
                static_cast<std::int64_t>(call.index_count),
                static_cast<std::int64_t>(call.row_count), static_cast<const Row *>(call.rows),
                call.indices, call.offsets, call.weights, static_cast<Out *>(call.out));
            CleanRegisters();
        }
        return good;
    };
}

template <typename Row, typename Out> Run MakeDense(const eb_fbgemm_shape &shape)
{
    auto kernel = fbgemm::GenerateEmbeddingSpMDMWithStrides<Row, std::int64_t, std::int32_t, Out>(
        shape.dim, shape.is_weighted, shape.is_mean, kPrefetchRows, false, true, -1,
        static_cast<std::int64_t>(shape.row_stride_bytes / sizeof(Row)), true, false,
        shape.output_type == EB_BF16, shape.storage == EB_STORAGE_BF16);
    return Bind<decltype(kernel), Row, Out>(kernel);
}

template <typename Out> Run MakeCodes(const eb_fbgemm_shape &shape, int bits)
{
    auto kernel = fbgemm::GenerateEmbeddingSpMDMNBitWithStrides<std::int64_t, std::int32_t, Out>(
        bits, shape.dim, shape.is_weighted, shape.is_mean, kPrefetchRows, false, true, -1,
        static_cast<std::int64_t>(shape.row_stride_bytes), true, shape.output_type == EB_BF16);
    return Bind<decltype(kernel), std::uint8_t, Out>(kernel);
}

template <typename Out>
Run MakeFp8(const eb_fbgemm_shape &shape, int exponent_bits, int exponent_bias)
{
    if (shape.is_weighted) {
        return {};
    }
    auto kernel =
        fbgemm::GenerateEmbeddingSpMDMFP8WithStrides<std::int64_t, std::int32_t, Out>(shape.dim,
            shape.is_mean, false, true, -1, static_cast<std::int64_t>(shape.row_stride_bytes),
            exponent_bits, exponent_bias, shape.output_type == EB_BF16);
    return Bind<decltype(kernel), std::uint8_t, Out>(kernel);
}

template <typename Out> Run Make(const eb_fbgemm_shape &shape)
{
    switch (shape.storage) {
    case EB_STORAGE_F32: return MakeDense<float, Out>(shape);
    case EB_STORAGE_F16: return MakeDense<fbgemm::float16, Out>(shape);
    case EB_STORAGE_BF16: return MakeDense<std::uint16_t, Out>(shape);
    case EB_STORAGE_INT8: return MakeDense<std::uint8_t, Out>(shape);
    case EB_STORAGE_INT4: return MakeCodes<Out>(shape, 4);
    case EB_STORAGE_INT2: return MakeCodes<Out>(shape, 2);
    case EB_STORAGE_F8_E4M3: return MakeFp8<Out>(shape, 4, 7);
    case EB_STORAGE_F8_E5M2: return MakeFp8<Out>(shape, 5, 15);
    default: return {};
    }
}
} // namespace

bool eb_fbgemm_is_built(void)
{
    return true;
}

eb_fbgemm_kernel *eb_fbgemm_create(const eb_fbgemm_shape *shape)
{
    Run run;
    if (shape->output_type == EB_F32) {
        run = Make<float>(*shape);
    } else if (shape->output_type == EB_F16 || shape->output_type == EB_BF16) {
        run = Make<std::uint16_t>(*shape);
    }
    return run ? new eb_fbgemm_kernel{std::move(run)} : nullptr;
}

void eb_fbgemm_destroy(eb_fbgemm_kernel *kernel)
{
    delete kernel;
}

bool eb_fbgemm_is_tuned(const eb_fbgemm_shape *shape)
{
    switch (shape->storage) {
    case EB_STORAGE_F8_E4M3:
    case EB_STORAGE_F8_E5M2: return false;
    case EB_STORAGE_BF16: return shape->output_type != EB_F32;
    default: return true;
    }
}

bool eb_fbgemm_run(
    const eb_fbgemm_kernel *kernel, const eb_fbgemm_call *calls, std::uint64_t call_count)
{
    return kernel->run(calls, call_count);
}
