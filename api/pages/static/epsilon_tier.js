// Which tier an ε is in, by Ponomareva et al. 2023, "How to DP-fy ML": up to 1, up to 10, above.

const TIERS = [
  [1, "Tier 1 of 3: up to 1"],
  [10, "Tier 2 of 3: up to 10"],
  [Infinity, "Tier 3 of 3: no formal claim"],
];

export function epsilonTier(epsilon) {
  return epsilon > 0 ? TIERS.find(([most]) => epsilon <= most)[1] : "";
}
