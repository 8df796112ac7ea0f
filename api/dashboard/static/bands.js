// What a value of ε means, in three words (the usual bands: up to 1, up to 10, above).

const BANDS = [
  [1, "Strong protection"],
  [10, "Reasonable protection"],
  [Infinity, "No formal claim"],
];

export function band(epsilon) {
  return epsilon > 0 ? BANDS.find(([most]) => epsilon <= most)[1] : "";
}
