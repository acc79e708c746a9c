/** Putting a tested fix into the text of a cell. */

import { Fix } from './report';

const MAGIC = /^(\s*%%?(?:jitcheck|jit))(?=\s|$)/;

/** Whether a button may offer this fix: it was applied and run again, and says by itself what to write. */
export function canApply(fix: Fix): boolean {
  const said = [fix.magic, fix.cell, fix.static_argnames, fix.static_argnums, fix.dyn];
  return fix.verified && said.some(part => part !== null) && fix.applicability !== 'display';
}

/** The cell's text after the fix: the body of `fix.cell`, the magic line kept, its options changed. */
export function applied(text: string, fix: Fix): string {
  const lines = text.split('\n');
  const cellMagic = lines[0].startsWith('%%');
  let body = cellMagic ? lines.slice(1).join('\n') : text;
  if (fix.cell !== null) {
    body = fix.cell.replace(/\n$/, '') + (body.endsWith('\n') ? '\n' : '');
  }
  if (cellMagic && fix.magic) {
    return `${withCalls(fix.magic, fix)}\n${body}`;
  }
  if (cellMagic) {
    return `${withCalls(withOptions(lines[0], fix), fix)}\n${body}`;
  }
  const own = body.split('\n');
  const at = own.findIndex(line => MAGIC.test(line));
  if (at >= 0) {
    own[at] = withOptions(own[at], fix);
  }
  return own.join('\n');
}

function withOptions(line: string, fix: Fix): string {
  let changed = line;
  if (fix.static_argnames !== null) {
    changed = withOption(changed, /(?:--static|-s)/, '--static', fix.static_argnames);
  }
  if (fix.static_argnums !== null) {
    changed = withOption(changed, /--static-argnums/, '--static-argnums', fix.static_argnums.map(String));
  }
  if (fix.dyn !== null) {
    changed = withOption(changed, /(?:--dyn|-d)/, '--dyn', fix.dyn);
  }
  return changed;
}

/** `line` with this list for the option, in the place of what it had; an empty list takes the option out. */
function withOption(line: string, flag: RegExp, name: string, values: string[]): string {
  const head = MAGIC.exec(line);
  if (!head) {
    return line;
  }
  const rest = line.slice(head[0].length);
  const old = new RegExp(`\\s+${flag.source}(?:\\s+|=)(?:"[^"]*"|'[^']*'|\\S+)`);
  const joined = values.join(',');
  const option = joined ? ` ${name} ${/\s/.test(joined) ? `"${joined}"` : joined}` : '';
  return head[0] + (old.test(rest) ? rest.replace(old, () => option) : option + rest);
}

/** The calls of the magic line in their corrected form, where the fix gives one for each. */
function withCalls(line: string, fix: Fix): string {
  const calls = fix.calls ?? [];
  const name = /^([\w.]+)\(/.exec(calls[0] ?? '')?.[1];
  if (!name || calls.some(call => call.includes('\n') || !call.startsWith(`${name}(`))) {
    return line;
  }
  const start = line.search(new RegExp(`(?<=\\s)${name.replace(/\./g, '\\.')}\\(`));
  const count = start < 0 ? 0 : line.slice(start).split(/;\s*/).filter(Boolean).length;
  return count === calls.length ? line.slice(0, start) + calls.join('; ') : line;
}

/** The smallest replacement that turns `before` into `after`, so that cursor and undo stay where they can. */
export function change(before: string, after: string): { from: number; to: number; insert: string } {
  let from = 0;
  const most = Math.min(before.length, after.length);
  while (from < most && before[from] === after[from]) {
    from++;
  }
  let end = 0;
  while (end < most - from && before[before.length - 1 - end] === after[after.length - 1 - end]) {
    end++;
  }
  return { from, to: before.length - end, insert: after.slice(from, after.length - end) };
}
