#pragma once
#include <x86intrin.h>
#include <cstdio>
#include <algorithm>
#include <vector>
namespace xs {
inline unsigned long long last;
inline std::vector<float> v[32];
inline const char* name[32];
inline bool on;
inline void Begin() { on = true; last = __rdtsc(); }
inline void At(int i, const char* n) { if (!on) return; auto t = __rdtsc(); name[i] = n; if (v[i].capacity() == 0) v[i].reserve(1 << 20); v[i].push_back((t - last) / 2.6e3f); last = __rdtsc(); }
inline void Print() { for (int i = 0; i < 32; ++i) if (v[i].size()) { std::sort(v[i].begin(), v[i].end()); fprintf(stderr, "%2d %-14s med %.3f p25 %.3f n %zu\n", i, name[i], v[i][v[i].size()/2], v[i][v[i].size()/4], v[i].size()); v[i].clear(); } }
}
