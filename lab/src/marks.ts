/** What a report says about the text of one cell, as offsets into it: nothing here knows an editor. */

import { Finding, FunctionReport, Report, Severity, Span, State } from './report';

/** A stretch of the text and the finding it belongs to. */
export interface Squiggle {
  from: number;
  to: number;
  severity: Severity;
  finding: Finding;
}

/** One line's share of what the function that it belongs to costs, from 0 to 1. */
export interface Heat {
  line: number;
  share: number;
  words: string;
}

/** Words behind the end of a line. */
export interface EndNote {
  line: number;
  constants: string[];
  stale: boolean;
  cost: string;
}

export interface Marks {
  squiggles: Squiggle[];
  heat: Heat[];
  notes: EndNote[];
}

/** Which of the marks the settings ask for. */
export interface Wanted {
  squiggles: boolean;
  notes: boolean;
  constants: boolean;
  heat: boolean;
}

/** A report whose own cell this is, or one with findings that lie in it under the name of its code. */
export interface Source {
  report: Report;
  own: boolean;
  /** Made here, or signed: a stranger's report says what it will, and offers nothing to be written. */
  trusted: boolean;
}

/** Shown as words behind their line. */
const TOLD_BEHIND = new Set(['captured-constant', 'captured-scalar']);
const NAMES_IN_A_NOTE = 3;
/** Lines below this share are not worth words of their own. */
const WORTH_WORDS = 0.1;
const UNITS = { seconds: 'time', flops: 'flop', equations: 'equations' };

export function marksFor(text: string, sources: Source[], isHere: (name: string) => boolean, wanted: Wanted): Marks {
  const lines = text.split('\n');
  const marks: Marks = { squiggles: [], heat: [], notes: [] };
  const seen = new Set<string>();
  for (const { report, own, trusted } of sources) {
    if (wanted.squiggles) {
      for (const [finding, span] of report.findings.flatMap(places)) {
        const here = span.cell === null ? own : isHere(span.cell);
        const mark = here ? squiggle(withoutFixes(finding, own, trusted), span, lines) : null;
        const key = mark && `${mark.from} ${mark.to} ${finding.code} ${finding.function}`;
        const shown = mark?.severity !== 'note' || (wanted.notes && !(wanted.constants && TOLD_BEHIND.has(finding.kind)));
        if (mark && key && shown && !seen.has(key)) {
          seen.add(key);
          marks.squiggles.push(mark);
        }
      }
    }
  }
  const functions = latest(sources.filter(s => s.own));
  const notes = new Map<number, EndNote>();
  for (const fn of functions) {
    if (wanted.constants) {
      addConstants(fn, lines.length, notes);
    }
    if (wanted.heat && !fn.wrong) {
      marks.heat.push(...heatOf(fn, lines.length, notes));
    }
  }
  marks.squiggles.sort((a, b) => a.from - b.from || a.to - b.to);
  marks.heat.sort((a, b) => a.line - b.line);
  marks.notes = [...notes.values()].sort((a, b) => a.line - b.line);
  return marks;
}

/** A finding with each stretch to be marked for it. */
function places(finding: Finding): [Finding, Span][] {
  return [finding.shows, finding.span].filter(span => span !== null).map(span => [finding, span]);
}

/** The finding without what can't be applied here: fixes are whole texts of the report's own cell. */
function withoutFixes(finding: Finding, own: boolean, trusted: boolean): Finding {
  if (own && trusted) {
    return finding;
  }
  const help = trusted ? finding.help : [finding.help, 'saved report, not checked here'].filter(Boolean).join('; ');
  return { ...finding, fixes: [], help };
}

export function isEmpty(marks: Marks): boolean {
  return !marks.squiggles.length && !marks.heat.length && !marks.notes.length;
}

/** The last word about each function. */
function latest(sources: Source[]): FunctionReport[] {
  const byName = new Map<string, FunctionReport>();
  for (const { report } of sources) {
    for (const fn of report.functions) {
      byName.set(fn.name, fn);
    }
  }
  return [...byName.values()];
}

function squiggle(finding: Finding, span: Span, lines: string[]): Squiggle | null {
  const first = lines[span.line - 1];
  // The source travels with the span: a line that reads differently is another line.
  if (first === undefined || (span.source && first.trim() !== span.source.trim())) {
    return null;
  }
  const from = offset(lines, span.line, span.column);
  let to = offset(lines, span.end_line, span.end_column);
  if (to <= from) {
    to = offset(lines, span.line, Infinity);
  }
  return from < to ? { from, to, severity: finding.severity, finding } : null;
}

/** Offset in UTF-16 units of a line from 1 and a column in code points, clamped to the text. */
function offset(lines: string[], line: number, column: number): number {
  const last = Math.min(Math.max(line, 1), lines.length);
  let start = 0;
  for (let i = 0; i < last - 1; i++) {
    start += lines[i].length + 1;
  }
  const text = lines[last - 1];
  return start + (column >= text.length ? text.length : [...text].slice(0, column).join('').length);
}

function noteAt(line: number, notes: Map<number, EndNote>): EndNote {
  const note = notes.get(line) ?? { line, constants: [], stale: false, cost: '' };
  notes.set(line, note);
  return note;
}

/** Which arrays each line reads that are constants; of anything else (`eps = 1e-8`, functions) what has changed since. */
function addConstants(fn: FunctionReport, count: number, notes: Map<number, EndNote>): void {
  for (const state of fn.state) {
    if (state.role !== 'constant' || !(state.stale || state.type === 'array')) {
      continue;
    }
    for (const line of state.lines) {
      if (line >= 1 && line <= count) {
        const note = noteAt(line, notes);
        const words = described(state);
        if (!note.constants.includes(words)) {
          note.constants.push(words);
        }
        note.stale = note.stale || state.stale;
      }
    }
  }
}

/** The words of an end note. */
export function noteWords(note: EndNote): string {
  const shown = note.constants.slice(0, NAMES_IN_A_NOTE);
  const more = note.constants.length - shown.length;
  const list = shown.join(', ') + (more > 0 ? ` and ${more} more` : '');
  const constants = list && `${list} constant${note.stale ? ', changed since' : ''}`;
  return [constants, note.cost].filter(Boolean).join(' · ');
}

function described(state: State): string {
  if (state.value) {
    return `\`${state.path}\` = ${state.value}`;
  }
  const known = state.shape !== null || state.dtype;
  return known ? `\`${state.path}\` ${shortType(state.dtype ?? '')}[${(state.shape ?? []).join(',')}]` : `\`${state.path}\``;
}

/** A dtype as jaxprs spell it. */
function shortType(dtype: string): string {
  const found = /^(bfloat|float|complex|uint|int)(\d+.*)$/.exec(dtype);
  const letters: Record<string, string> = { bfloat: 'bf', float: 'f', complex: 'c', uint: 'u', int: 'i' };
  return found ? letters[found[1]] + found[2] : dtype;
}

/** The heat of the lines by what was measured, else by what was counted. */
function heatOf(fn: FunctionReport, count: number, notes: Map<number, EndNote>): Heat[] {
  const unit = fn.line_times.length ? 'seconds' : fn.lines.some(c => c.flops) ? 'flops' : 'equations';
  const costs = (unit === 'seconds' ? fn.line_times : fn.lines).filter(c => c.line >= 1 && c.line <= count);
  const total = costs.reduce((sum, c) => sum + c[unit], 0);
  if (!total || costs.length < 2) {
    return []; // one line alone is always all of it
  }
  const heat = [];
  for (const cost of costs) {
    const { line } = cost;
    const share = cost[unit] / total;
    const words = `${Math.round(100 * share)} % of the ${UNITS[unit]}`;
    heat.push({ line, share, words: `${words} of ${fn.name}` });
    if (share >= WORTH_WORDS) {
      noteAt(line, notes).cost = words;
    }
  }
  return heat;
}
