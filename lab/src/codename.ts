/** Which cell a code object's name stands for. */

const SEED = 0xc70f6907;
const M = 0x5bd1e995;

/** Whether `name`, `…/ipykernel_<pid>/<hash>.py`, was made from `source`: ipykernel hashes the cell's text. */
export function isNameOf(name: string, source: string): boolean {
  const found = /[\\/](\d+)\.py$/.exec(name);
  return found !== null && found[1] === String(murmur2(source));
}

/** MurmurHash2 of the text as UTF-8, as in ipykernel.compiler.murmur2_x86. */
export function murmur2(text: string): number {
  const data = new TextEncoder().encode(text);
  const whole = data.length & ~3;
  let h = SEED ^ data.length;
  for (let i = 0; i < whole; i += 4) {
    let k = data[i] | (data[i + 1] << 8) | (data[i + 2] << 16) | (data[i + 3] << 24);
    k = Math.imul(k, M);
    k ^= k >>> 24;
    h = Math.imul(h, M) ^ Math.imul(k, M);
  }
  const left = data.length & 3;
  if (left) {
    for (let i = left - 1; i >= 0; i--) {
      h ^= data[whole + i] << (8 * i);
    }
    h = Math.imul(h, M);
  }
  h ^= h >>> 13;
  h = Math.imul(h, M);
  return (h ^ (h >>> 15)) >>> 0;
}
