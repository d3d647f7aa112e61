// Forwards on weights of four, eight and 32 bits, by AVX-512 and, for the rounded ones, its VNNI instructions.
//
// Rows are rounded to eight bits, 32 numbers sharing a scale, and products of whole numbers are summed exactly, as
// llama.cpp multiplies Q4_1 with Q8_1. A row's result never depends on the rows beside it: every sum that is rounded
// runs in an order of its own row alone, and keys that a row does not see weigh nothing in it.
//
// Weights [out, in]: blocks of 16 outputs x groups of 32 inputs. Of a block and group lie 8 steps of 16 outputs x 4
// inputs as bytes (8 bits: w = scale * (q - 128)), or steps 0 to 3 in the low halves and 4 to 7 in the high halves of
// 256 bytes (4 bits: w = scale * q + offset). Scales, and behind them offsets, are 16 halves each.
//
// fp32 weights lie as oneDNN packs them: blocks of ``block`` outputs, side by side for each input. Every output is a sum
// over the inputs in their order, so that there, too, a row's result is its own.

#include <dlfcn.h>
#include <sched.h>

#include <atomic>
#include <cstring>

#include "kernel_attention.h"

namespace {

constexpr int GROUP = 32, OUT = 16;

// ``outputs`` of a layer; fp32: from the ``from``-th block of OUT on.
struct Linear {
  const uint8_t *numbers;
  const uint16_t *scale;
  const float *bias;
  int64_t outputs, inputs, bits, block, from;
  int64_t groups() const { return (inputs + GROUP - 1) / GROUP; }
  int64_t blocks() const { return (outputs + OUT - 1) / OUT; }
};

struct Layer {
  const float *norm, *after, *query_norm, *key_norm;
  Linear qkv[3], out, gate_up[2], down; // those that are computed as one are the first of theirs
};

struct Stack {
  int64_t layers, hidden, heads, kv_heads, head_dim, mlp, capacity;
  double eps;
  const Layer *layer;
};

// A number of threads that run one function, on the pool that torch computes on where it has one.
struct Team {
  std::atomic<int64_t> threads{1}, arrived{0}, phase{0};

  void wait() {
    const int64_t all = threads.load(std::memory_order_relaxed);
    if (all == 1) return;
    int64_t now = phase.load(std::memory_order_acquire);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) == all - 1) {
      arrived.store(0, std::memory_order_relaxed);
      phase.store(now + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; phase.load(std::memory_order_acquire) == now; ++spins)
      if (spins < 1000) _mm_pause();
      else sched_yield();
  }
};

using Parallel = void (*)(void (*)(void *), void *, unsigned, unsigned);
using Number = int (*)();
Parallel gomp_parallel;
Number gomp_threads, gomp_thread;

template <class F> void run(int64_t threads, F &&work) {
  struct Job {
    Team team;
    F *work;
    static void enter(void *job) {
      Job *own = static_cast<Job *>(job);
      int64_t count = gomp_threads(), thread = gomp_thread();
      own->team.threads.store(count, std::memory_order_relaxed); // every thread says the same
      (*own->work)(own->team, thread, count);
    }
  };
  if (threads > 1 && gomp_parallel && gomp_threads && gomp_thread) {
    Job job;
    job.work = &work;
    gomp_parallel(&Job::enter, &job, unsigned(threads), 0);
    return;
  }
  Team alone;
  work(alone, 0, 1);
}

inline __m512 silu_of(__m512 x) {
  __m512 e = exponential(_mm512_sub_ps(_mm512_setzero_ps(), x));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.f), e));
}

void norm_row(const float *x, const float *weight, float *y, int64_t width, double eps) {
  __m512d low = _mm512_setzero_pd(), high = low;
  for (int64_t i = 0; i < width; i += 16) {
    __m512 v = _mm512_maskz_loadu_ps(first(width - i), x + i);
    __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v)), b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    low = _mm512_fmadd_pd(a, a, low), high = _mm512_fmadd_pd(b, b, high);
  }
  __m512d by = _mm512_set1_pd(1 / std::sqrt(_mm512_reduce_add_pd(_mm512_add_pd(low, high)) / double(width) + eps));
  for (int64_t i = 0; i < width; i += 8) {
    __mmask8 rest = __mmask8(first(width - i < 8 ? width - i : 8));
    __m512d a = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(rest, x + i));
    __m512d w = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(rest, weight + i));
    _mm256_mask_storeu_ps(y + i, rest, _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_mul_pd(a, by), w)));
  }
}

// Rows of eight bits: of every eight rows, by group, 32 numbers of each; and of each group and row its scale, the sum of
// its numbers times -128, and the sum times the scale.
struct Rounded {
  int64_t groups = 0;
  std::vector<int8_t> numbers;
  std::vector<float> scale, offset;
  std::vector<int32_t> sum;

  void resize(int64_t rows, int64_t inputs) {
    groups = (inputs + GROUP - 1) / GROUP;
    size_t all = size_t((rows + ROWS - 1) / ROWS * ROWS * groups);
    if (scale.size() < all) scale.resize(all), offset.resize(all), sum.resize(all);
    if (numbers.size() < all * GROUP) numbers.resize(all * GROUP);
  }

  void set(int64_t row, const float *x, int64_t inputs, int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      int64_t at = g * GROUP, place = (row / ROWS * groups + g) * ROWS + row % ROWS;
      __m512 a = _mm512_maskz_loadu_ps(first(inputs - at), x + at);
      __m512 b = _mm512_maskz_loadu_ps(first(inputs - at - 16), x + at + 16);
      float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
      float d = most / 127.f;
      __m512 by = _mm512_set1_ps(most > 0 ? 127.f / most : 0.f);
      __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, by)), qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, by));
      int8_t *to = numbers.data() + place * GROUP;
      _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm512_cvtsepi32_epi8(qa));
      _mm_storeu_si128(reinterpret_cast<__m128i *>(to + 16), _mm512_cvtsepi32_epi8(qb));
      int32_t total = _mm512_reduce_add_epi32(_mm512_add_epi32(qa, qb));
      scale[place] = d, sum[place] = -128 * total, offset[place] = d * float(total);
    }
  }
  void set(int64_t row, const float *x, int64_t inputs) { set(row, x, inputs, 0, groups); }
};

inline __m512 halves(const uint16_t *from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}

// 16 outputs of R rows.
template <int BITS, int R>
inline void product(const Linear &w, int64_t block, const Rounded &x, int64_t row, __m512 *out) {
  const int64_t groups = x.groups;
  const uint8_t *from = w.numbers + block * groups * (BITS == 4 ? 256 : 512);
  const uint16_t *scale = w.scale + block * groups * (BITS == 4 ? 32 : 16);
  const int8_t *numbers = x.numbers.data() + row * groups * GROUP; // ``row`` is the first of eight
  const float *scales = x.scale.data() + row * groups, *offsets = x.offset.data() + row * groups;
  const int32_t *sums = x.sum.data() + row * groups;
  const int64_t next = groups * (BITS == 4 ? 256 : 512); // bytes to the next block, which is read ahead
  const __m512i low = _mm512_set1_epi8(15);
  __m512 total[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) total[r] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    __m512i q[8];
    __m512 d = halves(scale), m = d;
    for (int line = 0; line < (BITS == 4 ? 256 : 512); line += 64) _mm_prefetch(from + next + line, _MM_HINT_T0);
    _mm_prefetch(scale + groups * (BITS == 4 ? 32 : 16), _MM_HINT_T0);
    if (BITS == 4) {
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) {
        __m512i both = _mm512_loadu_si512(from + 64 * s);
        q[s] = _mm512_and_si512(both, low);
        q[s + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
      }
      m = halves(scale + 16);
      from += 256, scale += 32;
    } else {
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s) q[s] = _mm512_loadu_si512(from + 64 * s);
      from += 512, scale += 16;
    }
    constexpr int SIDE = R < 2 ? R : 2; // rows whose sums of whole numbers, exact in any order, run side by side
#pragma GCC unroll 8
    for (int from_row = 0; from_row < R; from_row += SIDE) {
      __m512i one[SIDE], two[SIDE];
#pragma GCC unroll 4
      for (int i = 0; i < SIDE; ++i) {
        one[i] = two[i] = _mm512_setzero_si512();
        if (BITS == 8 && from_row + i < R) one[i] = _mm512_set1_epi32(sums[from_row + i]);
      }
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s)
#pragma GCC unroll 4
        for (int i = 0; i < SIDE; ++i) {
          if (from_row + i >= R) continue;
          int32_t four[2];
          const int8_t *a = numbers + (from_row + i) * GROUP + 4 * s;
          std::memcpy(four, a, 4), std::memcpy(four + 1, a + 16, 4);
          one[i] = _mm512_dpbusd_epi32(one[i], q[s], _mm512_set1_epi32(four[0]));
          two[i] = _mm512_dpbusd_epi32(two[i], q[s + 4], _mm512_set1_epi32(four[1]));
        }
#pragma GCC unroll 4
      for (int i = 0; i < SIDE; ++i) {
        const int r = from_row + i;
        if (r >= R) continue;
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(one[i], two[i]));
        total[r] = _mm512_fmadd_ps(sum, _mm512_mul_ps(d, _mm512_set1_ps(scales[r])), total[r]);
        if (BITS == 4) total[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(offsets[r]), total[r]);
      }
    }
    numbers += ROWS * GROUP, scales += ROWS, offsets += ROWS, sums += ROWS;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) out[r] = total[r];
}

template <int BITS>
void products(const Linear &w, int64_t block, const Rounded &x, int64_t row, int64_t rows, __m512 *out) {
  switch (rows) {
  case 1: return product<BITS, 1>(w, block, x, row, out);
  case 2: return product<BITS, 2>(w, block, x, row, out);
  case 3: return product<BITS, 3>(w, block, x, row, out);
  case 4: return product<BITS, 4>(w, block, x, row, out);
  case 5: return product<BITS, 5>(w, block, x, row, out);
  case 6: return product<BITS, 6>(w, block, x, row, out);
  case 7: return product<BITS, 7>(w, block, x, row, out);
  default: return product<BITS, 8>(w, block, x, row, out);
  }
}

// Outputs of a block for up to eight rows, their bias added.
void outputs(const Linear &w, int64_t block, const Rounded &x, int64_t row, int64_t rows, __m512 *out) {
  w.bits == 4 ? products<4>(w, block, x, row, rows, out) : products<8>(w, block, x, row, rows, out);
  if (!w.bias) return;
  __m512 bias = _mm512_maskz_loadu_ps(first(w.outputs - block * OUT), w.bias + block * OUT);
  for (int64_t r = 0; r < rows; ++r) out[r] = _mm512_add_ps(out[r], bias);
}

// Blocks [begin, end) for all rows: y = x w, or y += x w; a row of y is ``width`` wide.
void multiply(const Linear &w, const Rounded &x, int64_t rows, float *y, int64_t width, int64_t begin, int64_t end,
              bool add) {
  __m512 out[ROWS];
  for (int64_t block = begin; block < end; ++block) {
    __mmask16 some = first(w.outputs - block * OUT);
    for (int64_t row = 0; row < rows; row += ROWS) {
      int64_t count = rows - row < ROWS ? rows - row : ROWS;
      outputs(w, block, x, row, count, out);
      for (int64_t r = 0; r < count; ++r) {
        float *to = y + (row + r) * width + block * OUT;
        if (add) out[r] = _mm512_add_ps(_mm512_maskz_loadu_ps(some, to), out[r]);
        _mm512_mask_storeu_ps(to, some, out[r]);
      }
    }
  }
}

constexpr int64_t SIDE_ROWS = 6, AHEAD = 1024; // rows computed side by side; numbers that are read ahead

// N * 16 outputs of R rows, fp32; ``step`` numbers lie between two inputs' weights.
template <int N, int R>
inline void whole_product(const float *from, int64_t step, const float *x, int64_t inputs, __m512 *out) {
  __m512 total[R][N];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) total[r][n] = _mm512_setzero_ps();
  for (int64_t i = 0; i < inputs; ++i, from += step) {
    __m512 w[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      _mm_prefetch(from + 16 * n + AHEAD, _MM_HINT_T0);
      w[n] = _mm512_loadu_ps(from + 16 * n);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 one = _mm512_set1_ps(x[r * inputs + i]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) total[r][n] = _mm512_fmadd_ps(w[n], one, total[r][n]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) out[r * N + n] = total[r][n];
}

template <int N>
void whole_outputs(const Linear &w, int64_t unit, const float *x, int64_t rows, float *y, int64_t width, bool add) {
  const int64_t at = (w.from + unit) * OUT, block = at / w.block;
  const float *from = reinterpret_cast<const float *>(w.numbers) + block * w.block * w.inputs + at % w.block;
  const int64_t passes = (rows + SIDE_ROWS - 1) / SIDE_ROWS;
  for (int64_t pass = 0; pass < passes; ++pass) {
    const Share some(rows, pass, passes);
    const float *own = x + some.begin * w.inputs;
    __m512 out[SIDE_ROWS * N];
    switch (some.end - some.begin) {
    case 1: whole_product<N, 1>(from, w.block, own, w.inputs, out); break;
    case 2: whole_product<N, 2>(from, w.block, own, w.inputs, out); break;
    case 3: whole_product<N, 3>(from, w.block, own, w.inputs, out); break;
    case 4: whole_product<N, 4>(from, w.block, own, w.inputs, out); break;
    case 5: whole_product<N, 5>(from, w.block, own, w.inputs, out); break;
    default: whole_product<N, 6>(from, w.block, own, w.inputs, out);
    }
    for (int n = 0; n < N; ++n) {
      const int64_t place = (unit + n) * OUT;
      const __mmask16 there = first(w.outputs - place);
      const __m512 bias = w.bias ? _mm512_maskz_loadu_ps(there, w.bias + place) : _mm512_setzero_ps();
      for (int64_t row = some.begin; row < some.end; ++row) {
        float *to = y + row * width + place;
        __m512 sum = out[(row - some.begin) * N + n];
        if (w.bias) sum = _mm512_add_ps(sum, bias);
        if (add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(there, to), sum);
        _mm512_mask_storeu_ps(to, there, sum);
      }
    }
  }
}

// ``multiply`` of rows as they are by fp32 weights.
void multiply(const Linear &w, const float *x, int64_t rows, float *y, int64_t width, int64_t begin, int64_t end,
              bool add) {
  const int64_t across = w.block / OUT;
  for (int64_t unit = begin, side; unit < end; unit += side) {
    side = across - (w.from + unit) % across;
    if (side > end - unit) side = end - unit;
    switch (side) {
    case 1: whole_outputs<1>(w, unit, x, rows, y, width, add); break;
    case 2: whole_outputs<2>(w, unit, x, rows, y, width, add); break;
    case 3: whole_outputs<3>(w, unit, x, rows, y, width, add); break;
    default: whole_outputs<4>(w, unit, x, rows, y, width, add);
    }
  }
}

struct Room {
  std::vector<float> x, joint, query, mixed, inner, up, normed;
  Rounded rounded;
  std::vector<std::vector<float>> own;
  void threads(int64_t count) {
    if (own.size() < size_t(count)) own.resize(size_t(count));
  }
};
thread_local Room room;

float *space(std::vector<float> &of, int64_t count) {
  if (of.size() < size_t(count)) of.resize(size_t(count));
  return of.data();
}

} // namespace

extern "C" {

int kernel_begin() {
  gomp_parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  gomp_threads = reinterpret_cast<Number>(dlsym(RTLD_DEFAULT, "omp_get_num_threads"));
  gomp_thread = reinterpret_cast<Number>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"));
  return gomp_parallel && gomp_threads && gomp_thread;
}

void kernel_linear(const Linear *w, const float *x, float *y, int64_t rows, int64_t threads) {
  if (w->bits == 32)
    return run(threads, [&](Team &, int64_t thread, int64_t count) {
      Share own(w->blocks(), thread, count);
      multiply(*w, x, rows, y, w->outputs, own.begin, own.end, false);
    });
  Rounded &rounded = room.rounded;
  rounded.resize(rows, w->inputs);
  run(threads, [&](Team &team, int64_t thread, int64_t count) {
    Share some(rows, thread, count);
    for (int64_t row = some.begin; row < some.end; ++row) rounded.set(row, x + row * w->inputs, w->inputs);
    team.wait();
    Share own(w->blocks(), thread, count);
    multiply(*w, rounded, rows, y, w->outputs, own.begin, own.end, false);
  });
}

void kernel_norm(const float *x, const float *weight, float *y, int64_t rows, int64_t width, double eps) {
  for (int64_t row = 0; row < rows; ++row) norm_row(x + row * width, weight, y + row * width, width, eps);
}

void kernel_silu(const float *x, float *y, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    __mmask16 some = first(count - i);
    _mm512_mask_storeu_ps(y + i, some, silu_of(_mm512_maskz_loadu_ps(some, x + i)));
  }
}

void kernel_attention(const Attention *all, int64_t threads) {
  Room &here = room;
  here.threads(threads);
  const int64_t parts = all->parts(threads), items = parts * all->kv_heads;
  run(threads, [&](Team &, int64_t thread, int64_t count) {
    Share own(items, thread, count);
    for (int64_t i = own.begin; i < own.end; ++i) all->attend(i / parts, i % parts, parts, here.own[size_t(thread)]);
  });
}

// All layers over ``rows`` rows behind ``length`` others. ``x`` [rows, hidden] are embeddings, and become the last
// layer's output; ``store`` [2 * layers, kv_heads, capacity, head_dim]. Per layer, ``masks`` [rows, keys]; ``hidden`` and
// ``queries``, where its input [rows, hidden], and its queries [heads, rows, head_dim] after rotary, go, or null.
void kernel_forward(const Stack *stack, float *x, const float *cos, const float *sin, const float *const *masks,
                    int64_t keys, int64_t length, int64_t rows, float *store, float *const *hidden,
                    float *const *queries, int64_t threads) {
  const Stack &s = *stack;
  Room &here = room;
  here.threads(threads);
  const int64_t wide = s.heads * s.head_dim, narrow = s.kv_heads * s.head_dim, joint_width = wide + 2 * narrow;
  float *joint = space(here.joint, rows * joint_width), *query = space(here.query, rows * wide);
  float *mixed = space(here.mixed, rows * wide), *inner = space(here.inner, rows * s.mlp);
  float *normed = space(here.normed, rows * s.hidden);
  const bool unrounded = s.layer[0].out.bits == 32; // fp32 weights, whose rows are not rounded
  float *up = unrounded ? space(here.up, rows * s.mlp) : nullptr;
  int64_t widest = wide > s.hidden ? wide : s.hidden;
  Rounded &rounded = here.rounded;
  if (!unrounded) rounded.resize(rows, s.mlp > widest ? s.mlp : widest);
  auto groups_of = [](int64_t inputs) { return (inputs + GROUP - 1) / GROUP; };

  run(threads, [&](Team &team, int64_t thread, int64_t count) {
    const Share own_rows(rows, thread, count);
    auto norm_and_round = [&](const float *weight) {
      if (!unrounded) {
        if (thread == 0) rounded.groups = groups_of(s.hidden);
        team.wait();
      }
      for (int64_t row = own_rows.begin; row < own_rows.end; ++row) {
        norm_row(x + row * s.hidden, weight, normed + row * s.hidden, s.hidden, s.eps);
        if (!unrounded) rounded.set(row, normed + row * s.hidden, s.hidden);
      }
      team.wait();
    };
    auto times = [&](const Linear &w, const float *from, float *y, int64_t width, bool add) {
      const Share own(w.blocks(), thread, count);
      if (unrounded) multiply(w, from, rows, y, width, own.begin, own.end, add);
      else multiply(w, rounded, rows, y, width, own.begin, own.end, add);
    };
    auto round_all = [&](const float *from, int64_t width) {
      if (unrounded) return;
      if (thread == 0) rounded.groups = groups_of(width);
      team.wait();
      const int64_t groups = groups_of(width);
      const Share own(rows * groups, thread, count);
      for (int64_t i = own.begin; i < own.end; ++i)
        rounded.set(i / groups, from + i / groups * width, width, i % groups, i % groups + 1);
      team.wait();
    };
    for (int64_t l = 0; l < s.layers; ++l) {
      const Layer &layer = s.layer[l];
      float *key_store = store + 2 * l * s.kv_heads * s.capacity * s.head_dim;
      float *value_store = key_store + s.kv_heads * s.capacity * s.head_dim;
      if (hidden[l])
        for (int64_t row = own_rows.begin; row < own_rows.end; ++row)
          std::memcpy(hidden[l] + row * s.hidden, x + row * s.hidden, size_t(s.hidden) * sizeof(float));
      norm_and_round(layer.norm);
      int64_t column = 0;
      for (const Linear &part : layer.qkv) {
        if (part.outputs) times(part, normed, joint + column, joint_width, false);
        column += part.outputs;
      }
      team.wait();
      const int64_t turned = s.heads + s.kv_heads, half = s.head_dim / 2;
      const Share own_heads(rows * (turned + s.kv_heads), thread, count);
      for (int64_t i = own_heads.begin; i < own_heads.end; ++i) {
        const int64_t row = i / (turned + s.kv_heads), head = i % (turned + s.kv_heads);
        float *from = joint + row * joint_width + head * s.head_dim;
        const int64_t slot = (length + row) * s.head_dim;
        if (head >= turned) {
          float *to = value_store + (head - turned) * s.capacity * s.head_dim + slot;
          std::memcpy(to, from, size_t(s.head_dim) * sizeof(float));
          continue;
        }
        const float *weight = head < s.heads ? layer.query_norm : layer.key_norm;
        if (weight) norm_row(from, weight, from, s.head_dim, s.eps);
        float *to = head < s.heads ? query + (head * rows + row) * s.head_dim
                                   : key_store + (head - s.heads) * s.capacity * s.head_dim + slot;
        const float *c = cos + row * s.head_dim, *n = sin + row * s.head_dim;
        for (int64_t d = 0; d < half; ++d) {
          to[d] = from[d] * c[d] + -from[d + half] * n[d];
          to[d + half] = from[d + half] * c[d + half] + from[d] * n[d + half];
        }
      }
      team.wait();
      if (queries[l]) {
        const Share some(rows * wide, thread, count);
        std::memcpy(queries[l] + some.begin, query + some.begin, size_t(some.end - some.begin) * sizeof(float));
      }
      const int64_t size = s.head_dim, whole = s.capacity * size; // of a head
      const Attention all{query,      key_store,  value_store, masks[l], mixed, rows,  keys, s.heads, s.kv_heads,
                          size,       rows * size, size,       whole,    size,  whole, size, size,    wide,
                          keys,       float(1 / std::sqrt(double(size)))};
      const int64_t parts = all.parts(count);
      const Share own_parts(parts * s.kv_heads, thread, count);
      for (int64_t i = own_parts.begin; i < own_parts.end; ++i)
        all.attend(i / parts, i % parts, parts, here.own[size_t(thread)]);
      team.wait();
      round_all(mixed, wide);
      times(layer.out, mixed, x, s.hidden, true);
      team.wait();
      norm_and_round(layer.after);
      const Share own(s.mlp / OUT, thread, count);
      if (unrounded) {
        multiply(layer.gate_up[0], normed, rows, inner, s.mlp, own.begin, own.end, false);
        multiply(layer.gate_up[1], normed, rows, up, s.mlp, own.begin, own.end, false);
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t i = row * s.mlp + own.begin * OUT; i < row * s.mlp + own.end * OUT; i += OUT)
            _mm512_storeu_ps(inner + i, _mm512_mul_ps(silu_of(_mm512_loadu_ps(inner + i)), _mm512_loadu_ps(up + i)));
      } else {
        for (int64_t block = own.begin; block < own.end; ++block)
          for (int64_t row = 0; row < rows; row += ROWS) {
            const int64_t some = rows - row < ROWS ? rows - row : ROWS;
            __m512 gate[ROWS], up[ROWS];
            outputs(layer.gate_up[0], block, rounded, row, some, gate);
            outputs(layer.gate_up[0], block + s.mlp / OUT, rounded, row, some, up);
            for (int64_t r = 0; r < some; ++r)
              _mm512_storeu_ps(inner + (row + r) * s.mlp + block * OUT, _mm512_mul_ps(silu_of(gate[r]), up[r]));
          }
      }
      team.wait();
      round_all(inner, s.mlp);
      times(layer.down, inner, x, s.hidden, true);
      team.wait();
    }
  });
}
}
