/** The marks in one CodeMirror editor. */

import { Diagnostic, setDiagnostics, setDiagnosticsEffect } from '@codemirror/lint';
import { EditorState, Extension, RangeSetBuilder, StateEffect, StateField, Compartment } from '@codemirror/state';
import { Decoration, DecorationSet, EditorView, GutterMarker, ViewPlugin, WidgetType, gutter } from '@codemirror/view';

import { applied, canApply, change } from './fix';
import { EndNote, Heat, Marks, Squiggle, isEmpty, noteWords } from './marks';
import { Fix } from './report';
import { Layer, icons, messages } from './shown';
import { theme } from './theme';
import { actionName, tooltip } from './tooltip';

const SEVERITY = { error: 'error', warning: 'warning', note: 'info' } as const;
const NONE: Marks = { squiggles: [], heat: [], notes: [] };

const setMarks = StateEffect.define<Marks>();
const gutters = new Compartment();

interface Drawn {
  marks: Marks;
  notes: DecorationSet;
}

const drawn = StateField.define<Drawn>({
  create: () => ({ marks: NONE, notes: Decoration.none }),
  update(value, tr) {
    for (const effect of tr.effects) {
      if (effect.is(setMarks)) {
        return { marks: effect.value, notes: endNotes(tr.state, effect.value.notes) };
      }
    }
    return value;
  },
  provide: field => EditorView.decorations.from(field, value => value.notes)
});

/** An edit makes the report's lines wrong, so every mark goes with the same transaction. */
const dropOnEdit = EditorState.transactionExtender.of(tr =>
  tr.docChanged && !isEmpty(marksOf(tr.startState))
    ? { effects: [setMarks.of(NONE), setDiagnosticsEffect.of([])] }
    : null
);

function marksOf(state: EditorState): Marks {
  return state.field(drawn, false)?.marks ?? NONE;
}

/** Whether anything of a report is drawn in the editor. */
export function hasMarks(view: EditorView): boolean {
  return !isEmpty(marksOf(view.state));
}

/** Show `marks` in the editor, in the place of what was there. */
export function show(view: EditorView, marks: Marks, withGutter: boolean): void {
  const known = view.state.field(drawn, false) !== undefined;
  if (!known && isEmpty(marks)) {
    return;
  }
  if (!known) {
    view.dispatch({ effects: StateEffect.appendConfig.of([drawn, dropOnEdit, gutters.of([]), messages(LAYER), noteWidths, theme]) });
  }
  view.dispatch({
    effects: [setMarks.of(marks), gutters.reconfigure(withGutter && !isEmpty(marks) ? bars(marks) : [])]
  });
  view.dispatch(setDiagnostics(view.state, marks.squiggles.flatMap(s => segments(view.state, s).map(diagnostic))));
}

/** The first fix that can be applied in this editor, from the finding at the cursor where one is there. */
export function fixAt(view: EditorView): Fix | null {
  const head = view.state.selection.main.head;
  const found = marksOf(view.state).squiggles.filter(s => s.finding.fixes.some(canApply));
  const here = found.find(s => s.from <= head && head <= s.to) ?? found[0];
  return here?.finding.fixes.find(canApply) ?? null;
}

/** Write the fix into the cell; one undo takes it back. */
export function apply(view: EditorView, fix: Fix): void {
  const before = view.state.doc.toString();
  const after = applied(before, fix);
  if (after !== before) {
    view.dispatch({ changes: change(before, after), userEvent: 'input.jitmagic', scrollIntoView: true });
  }
}

/** Put the cursor at the first finding of a line, or at the line. */
export function goTo(view: EditorView, number: number): void {
  if (number <= view.state.doc.lines) {
    const line = view.state.doc.line(number);
    const found = marksOf(view.state).squiggles.find(s => line.from <= s.from && s.from <= line.to);
    view.focus();
    view.dispatch({ selection: { anchor: found?.from ?? line.from }, scrollIntoView: true });
  }
}

const LAYER: Layer = { squiggles: state => marksOf(state).squiggles, apply };

/** A stretch of several lines as one for each, without their indentation. */
function segments(state: EditorState, squiggle: Squiggle): Squiggle[] {
  const { from, to } = squiggle;
  const made: Squiggle[] = [];
  for (let line = state.doc.lineAt(from); line.from < to; line = state.doc.line(line.number + 1)) {
    const start = Math.max(from, line.from + line.text.search(/\S|$/));
    const end = Math.min(to, line.from + line.text.trimEnd().length);
    if (start < end) {
      made.push({ ...squiggle, from: start, to: end });
    }
    if (line.number === state.doc.lines) {
      break;
    }
  }
  return made;
}

function diagnostic(squiggle: Squiggle): Diagnostic {
  const { from, to, finding } = squiggle;
  return {
    from,
    to,
    severity: SEVERITY[squiggle.severity],
    source: 'jitmagic',
    message: `${finding.severity}[${finding.code}] ${finding.kind}: ${finding.message}`,
    renderMessage: view => tooltip(finding, view.state.doc.toString()),
    markClass: `jm-mark-${finding.severity}`,
    actions: finding.fixes.filter(canApply).map((fix, i, all) => ({
      name: actionName(fix, i, all.length),
      apply: view => apply(view, fix)
    }))
  };
}

function endNotes(state: EditorState, notes: EndNote[]): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  for (const note of notes) {
    if (note.line <= state.doc.lines) {
      const at = state.doc.line(note.line).to;
      builder.add(at, at, Decoration.widget({ widget: new NoteWidget(noteWords(note), note.stale), side: 1 }));
    }
  }
  return builder.finish();
}

class NoteWidget extends WidgetType {
  constructor(
    private words: string,
    private stale: boolean
  ) {
    super();
  }

  eq(other: NoteWidget): boolean {
    return other.words === this.words && other.stale === this.stale;
  }

  toDOM(): HTMLElement {
    const dom = document.createElement('span');
    dom.className = this.stale ? 'jm-note jm-stale' : 'jm-note';
    dom.textContent = this.words.replace(/`/g, '');
    dom.title = dom.textContent;
    return dom;
  }
}

/** A note that begins in sight ends there too; behind a line that goes on beyond the editor it is whole. */
const noteWidths = ViewPlugin.define(view => {
  const notes = () => [...view.contentDOM.querySelectorAll<HTMLElement>('.jm-note')];
  const edge = (dom: HTMLElement) => dom.getBoundingClientRect().right - dom.scrollLeft;
  const measure = {
    key: notes,
    read: () => notes().map(dom => edge(view.scrollDOM) - dom.getBoundingClientRect().left - 1),
    write: (rooms: number[]) => notes().forEach((dom, i) => (dom.style.maxWidth = rooms[i] > 0 ? `${rooms[i]}px` : ''))
  };
  const update = () => view.requestMeasure(measure);
  update();
  return { update };
});

class HeatMarker extends GutterMarker {
  constructor(private heat: Heat) {
    super();
  }

  eq(other: HeatMarker): boolean {
    return other.heat.share === this.heat.share && other.heat.words === this.heat.words;
  }

  toDOM(): HTMLElement {
    const bar = document.createElement('div');
    bar.className = 'jm-heat';
    bar.title = this.heat.words;
    bar.setAttribute('role', 'img');
    bar.setAttribute('aria-label', this.heat.words);
    // Length says what strength says, for those who see no shades.
    bar.style.width = `${Math.max(2, Math.round(12 * this.heat.share))}px`;
    bar.style.opacity = String(0.35 + 0.65 * this.heat.share);
    return bar;
  }
}

/** Icons of the findings, and the heat of the lines where there is any. */
function bars(marks: Marks): Extension {
  const found = marks.squiggles.length ? [icons(LAYER)] : [];
  if (!marks.heat.length) {
    return found;
  }
  const byLine = new Map(marks.heat.map(heat => [heat.line, new HeatMarker(heat)]));
  const heat = gutter({
    class: 'jm-heat-gutter',
    lineMarker: (view, block) => byLine.get(view.state.doc.lineAt(block.from).number) ?? null
  });
  return [...found, heat];
}
