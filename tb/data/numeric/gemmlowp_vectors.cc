// Makes requant_fixed.txt: accumulator, multiplier, shift, result, by gemmlowp's own functions.
//
// Development only: building and testing need the text file, not this program. With google/gemmlowp at 16e8662:
//
//     g++ -O1 -I gemmlowp gemmlowp_vectors.cc -o vectors && ./vectors > requant_fixed.txt
#include <cstdint>
#include <cstdio>
#include <random>

#include "fixedpoint/fixedpoint.h"

int main() {
  std::mt19937 next(2104);
  for (int n = 0; n < 3000; ++n) {
    int shift = static_cast<int>(next() % 40) - 31;
    // The left shift must not overflow: the callers of gemmlowp see to that.
    int spare = 1 + (shift > 0 ? shift : 0) + static_cast<int>(next() % 20);
    std::int32_t acc = static_cast<std::int32_t>(next()) >> spare;
    std::int32_t multiplier = static_cast<std::int32_t>((1u << 30) | (next() & 0x3fffffff));
    switch (n % 4) {
      case 0:  // products with few bits, so that ties come out
        multiplier = 1 << 30;
        break;
      case 1:
        acc &= ~0u << (next() % 12);
        multiplier &= ~0u << (next() % 30);
        break;
    }
    std::int32_t shifted = gemmlowp::ShiftLeft(acc, shift > 0 ? shift : 0);
    std::int32_t high = gemmlowp::SaturatingRoundingDoublingHighMul(shifted, multiplier);
    std::int32_t result = gemmlowp::RoundingDivideByPOT(high, shift < 0 ? -shift : 0);
    std::printf("%d %d %d %d\n", acc, multiplier, shift, result);
  }
}
