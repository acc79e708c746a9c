/** Which lines go and which come, and where others stay between them. */

/** A line that goes (`-`), that comes (`+`), or the place of lines that stay (`…`). */
export type Line = [sign: '-' | '+' | '…', text: string];

/** Cells of the table of common lines; over this, what differs is one block. */
const MOST = 1_000_000;

export function diff(before: string, after: string): Line[] {
  const old = before.split('\n');
  const now = after.split('\n');
  const most = Math.min(old.length, now.length);
  let head = 0;
  while (head < most && old[head] === now[head]) {
    head++;
  }
  let tail = 0;
  while (tail < most - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) {
    tail++;
  }
  return between(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
}

function between(old: string[], now: string[]): Line[] {
  const common = old.length * now.length <= MOST ? lengths(old, now) : null;
  const lines: Line[] = [];
  let come: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (common && i < old.length && j < now.length && old[i] === now[j]) {
      if (come.length || (lines.length && lines[lines.length - 1][0] !== '…')) {
        lines.push(...come, ['…', '']);
        come = [];
      }
      i++;
      j++;
    } else if (i < old.length && (!common || j >= now.length || common[i + 1][j] >= common[i][j + 1])) {
      lines.push(['-', old[i++]]);
    } else {
      come.push(['+', now[j++]]);
    }
  }
  return [...lines, ...come];
}

/** For each pair of positions, how many lines the rests have in common. */
function lengths(old: string[], now: string[]): number[][] {
  const table = Array.from({ length: old.length + 1 }, () => new Array<number>(now.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      table[i][j] = old[i] === now[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  return table;
}
