// Attention of rows over keys and values in fp32, by AVX-512. A score is a sum over the head's numbers in their order,
// an output a sum over the keys in theirs, in which a hidden key adds 0; so a row's result is its own.

#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <vector>

constexpr int ROWS = 8, QUERIES = 6, KEYS = 64; // that are computed side by side

struct Share { // of what is divided among threads
  int64_t begin, end;
  Share(int64_t count, int64_t thread, int64_t threads)
      : begin(count * thread / threads), end(count * (thread + 1) / threads) {}
};

inline __mmask16 first(int64_t count) { return count >= 16 ? 0xffff : count <= 0 ? 0 : __mmask16((1u << count) - 1); }

inline __m512 exponential(__m512 x) {
  x = _mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(89.f)), _mm512_set1_ps(-104.f));
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.f)));
  return _mm512_scalef_ps(p, n);
}

// [16 keys, 16 dims] to [16 dims, 16 keys] in a tile whose rows are KEYS long.
inline void turn(const float *from, int64_t stride, int64_t keys, __mmask16 dims, float *to) {
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) _mm_prefetch(from + (KEYS + i) * stride, _MM_HINT_T0);
  for (int i = 0; i < 16; ++i) r[i] = i < keys ? _mm512_maskz_loadu_ps(dims, from + i * stride) : _mm512_setzero_ps();
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88), t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    _mm512_storeu_ps(to + i * KEYS, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
    _mm512_storeu_ps(to + (i + 4) * KEYS, _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88));
    _mm512_storeu_ps(to + (i + 8) * KEYS, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
    _mm512_storeu_ps(to + (i + 12) * KEYS, _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd));
  }
}

template <int Q, int N>
inline void scores(const float *query, const float *tile, int64_t dims, float *to, int64_t stride) {
  __m512 sum[Q][N];
  for (int q = 0; q < Q; ++q)
    for (int n = 0; n < N; ++n) sum[q][n] = _mm512_setzero_ps();
  for (int64_t d = 0; d < dims; ++d) {
    __m512 key[N];
    for (int n = 0; n < N; ++n) key[n] = _mm512_loadu_ps(tile + d * KEYS + 16 * n);
    for (int q = 0; q < Q; ++q) {
      __m512 one = _mm512_set1_ps(query[q * dims + d]);
      for (int n = 0; n < N; ++n) sum[q][n] = _mm512_fmadd_ps(one, key[n], sum[q][n]);
    }
  }
  for (int q = 0; q < Q; ++q)
    for (int n = 0; n < N; ++n) _mm512_storeu_ps(to + q * stride + 16 * n, sum[q][n]);
}

template <int Q>
void scores(int64_t vectors, const float *query, const float *tile, int64_t dims, float *to, int64_t stride) {
  switch (vectors) {
  case 1: return scores<Q, 1>(query, tile, dims, to, stride);
  case 2: return scores<Q, 2>(query, tile, dims, to, stride);
  case 3: return scores<Q, 3>(query, tile, dims, to, stride);
  default: return scores<Q, 4>(query, tile, dims, to, stride);
  }
}

template <int Q, int N>
inline void mixed(const float *weight, int64_t stride, const float *value, int64_t value_stride, int64_t keys,
                  __mmask16 rest, const float *by, float *const *out) {
  __m512 sum[Q][N];
  for (int q = 0; q < Q; ++q)
    for (int n = 0; n < N; ++n) sum[q][n] = _mm512_setzero_ps();
  for (int64_t k = 0; k < keys; ++k) {
    __m512 v[N];
    for (int n = 0; n < N; ++n) _mm_prefetch(value + (k + 16) * value_stride + 16 * n, _MM_HINT_T0);
    for (int n = 0; n < N; ++n)
      v[n] = _mm512_maskz_loadu_ps(n == N - 1 ? rest : 0xffff, value + k * value_stride + 16 * n);
    for (int q = 0; q < Q; ++q) {
      __m512 one = _mm512_set1_ps(weight[q * stride + k]);
      for (int n = 0; n < N; ++n) sum[q][n] = _mm512_fmadd_ps(one, v[n], sum[q][n]);
    }
  }
  for (int q = 0; q < Q; ++q) {
    const __m512 share = _mm512_set1_ps(by[q]);
    for (int n = 0; n < N; ++n)
      _mm512_mask_storeu_ps(out[q] + 16 * n, n == N - 1 ? rest : 0xffff, _mm512_mul_ps(sum[q][n], share));
  }
}

template <int Q>
void mixed(int64_t vectors, const float *weight, int64_t stride, const float *value, int64_t value_stride,
           int64_t keys, __mmask16 rest, const float *by, float *const *out) {
  switch (vectors) {
  case 1: return mixed<Q, 1>(weight, stride, value, value_stride, keys, rest, by, out);
  case 2: return mixed<Q, 2>(weight, stride, value, value_stride, keys, rest, by, out);
  case 3: return mixed<Q, 3>(weight, stride, value, value_stride, keys, rest, by, out);
  default: return mixed<Q, 4>(weight, stride, value, value_stride, keys, rest, by, out);
  }
}

// What rows attend to. Strides are in numbers; ``mask`` [rows, keys] is 0 where a row sees a key; without one, the rows
// are the last keys and see those before them and themselves.
struct Attention {
  const float *query, *key, *value, *mask;
  float *out;
  int64_t rows, keys, heads, kv_heads, dims;
  int64_t query_head, query_row, key_head, key_row, value_head, value_row, out_head, out_row, mask_row;
  float scale;

  int64_t parts(int64_t threads) const {
    int64_t few = (rows + ROWS - 1) / ROWS, shared = threads > 1 ? (rows < threads ? rows : threads) : 1;
    return few > shared ? few : shared;
  }

  // Rows of part ``part`` of ``all``, for one head of keys.
  void attend(int64_t kv, int64_t part, int64_t all, std::vector<float> &room) const {
    const Share own(rows, part, all);
    const int64_t group = heads / kv_heads, count = (own.end - own.begin) * group;
    const int64_t seen = mask ? keys : keys - rows + own.end;
    const int64_t stride = (seen + KEYS - 1) / KEYS * KEYS, turned = (dims + 15) / 16 * 16;
    room.resize(size_t(count * dims + count * stride + turned * KEYS + count));
    float *queries = room.data(), *weights = queries + count * dims, *tile = weights + count * stride;
    float *by = tile + turned * KEYS;
    auto head_of = [&](int64_t q) { return kv * group + q % group; };
    auto row_of = [&](int64_t q) { return own.begin + q / group; };
    for (int64_t q = 0; q < count; ++q) {
      const float *from = query + head_of(q) * query_head + row_of(q) * query_row;
      for (int64_t d = 0; d < dims; ++d) queries[q * dims + d] = from[d] * scale;
    }
    for (int64_t k = 0; k < seen; k += KEYS) {
      const int64_t here = seen - k < KEYS ? seen - k : KEYS, vectors = (here + 15) / 16;
      for (int64_t n = 0; n < vectors; ++n)
        for (int64_t d = 0; d < dims; d += 16)
          turn(key + kv * key_head + (k + 16 * n) * key_row + d, key_row, here - 16 * n, first(dims - d),
               tile + d * KEYS + 16 * n);
      int64_t q = 0;
      for (; q + QUERIES <= count; q += QUERIES)
        scores<QUERIES>(vectors, queries + q * dims, tile, dims, weights + q * stride + k, stride);
      for (; q + 3 <= count; q += 3)
        scores<3>(vectors, queries + q * dims, tile, dims, weights + q * stride + k, stride);
      for (; q < count; ++q) scores<1>(vectors, queries + q * dims, tile, dims, weights + q * stride + k, stride);
    }
    for (int64_t q = 0; q < count; ++q) by[q] = soften(weights + q * stride, row_of(q), seen);
    const float *values = value + kv * value_head;
    for (int64_t d = 0; d < dims; d += 64) {
      const int64_t left = dims - d < 64 ? dims - d : 64, vectors = (left + 15) / 16;
      const __mmask16 rest = first(left - 16 * (vectors - 1));
      float *to[QUERIES];
      auto mix = [&](int64_t q, int64_t some) {
        for (int64_t i = 0; i < some; ++i) to[i] = out + head_of(q + i) * out_head + row_of(q + i) * out_row + d;
        const float *from = weights + q * stride;
        if (some == QUERIES) mixed<QUERIES>(vectors, from, stride, values + d, value_row, seen, rest, by + q, to);
        else if (some == 3) mixed<3>(vectors, from, stride, values + d, value_row, seen, rest, by + q, to);
        else mixed<1>(vectors, from, stride, values + d, value_row, seen, rest, by + q, to);
      };
      int64_t q = 0;
      for (; q + QUERIES <= count; q += QUERIES) mix(q, QUERIES);
      for (; q + 3 <= count; q += 3) mix(q, 3);
      for (; q < count; ++q) mix(q, 1);
    }
  }

  __mmask16 sees(int64_t row, int64_t k, int64_t seen) const {
    __mmask16 there = first(seen - k);
    if (!mask) return there & first(keys - rows + row + 1 - k);
    return _mm512_mask_cmp_ps_mask(there, _mm512_maskz_loadu_ps(there, mask + row * mask_row + k),
                                   _mm512_set1_ps(-1e30f), _CMP_GT_OQ);
  }

  // Scores to weights; returns what they are to be multiplied with. Weights are summed in steps of 2^-36, exactly, so
  // that the sum of what a row sees is the same wherever those keys lie.
  float soften(float *weight, int64_t row, int64_t seen) const {
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 most = none;
    for (int64_t k = 0; k < seen; k += 16)
      most = _mm512_max_ps(most, _mm512_mask_loadu_ps(none, sees(row, k, seen), weight + k));
    const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    const __m512d step = _mm512_set1_pd(98304.0); // 1.5 * 2^16: its last digit is 2^-36
    __m512d low = _mm512_setzero_pd(), high = low;
    for (int64_t k = 0; k < seen; k += 16) {
      __mmask16 here = sees(row, k, seen);
      __m512 p = _mm512_maskz_mov_ps(here, exponential(_mm512_sub_ps(_mm512_loadu_ps(weight + k), top)));
      _mm512_storeu_ps(weight + k, p);
      __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(p)), b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(p, 1));
      low = _mm512_add_pd(low, _mm512_sub_pd(_mm512_add_pd(a, step), step));
      high = _mm512_add_pd(high, _mm512_sub_pd(_mm512_add_pd(b, step), step));
    }
    double sum = _mm512_reduce_add_pd(_mm512_add_pd(low, high));
    return sum > 0 ? float(1 / sum) : 0.f;
  }
};
