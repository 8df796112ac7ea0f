// What a value of ε means, in three words (the usual tiers: up to 1, up to 10, above).

const TIERS = [
  [1, "Strong protection"],
  [10, "Reasonable protection"],
  [Infinity, "No formal claim"],
];

export function epsilonTier(epsilon) {
  return epsilon > 0 ? TIERS.find(([most]) => epsilon <= most)[1] : "";
}
