/** A finding's message where somebody asks for it: at the next finding, at an icon beside the line, all in a list. */

import { EditorState, Extension, Range, RangeSet, StateEffect, StateField } from '@codemirror/state';
import { EditorView, GutterMarker, KeyBinding, Rect, ViewUpdate, gutter, keymap, showPanel, showTooltip } from '@codemirror/view';

import { canApply } from './fix';
import { Severity } from './report';
import { actionName, tooltip } from './tooltip';
import type { Fix } from './report';
import type { Squiggle } from './marks';

const SEVERITIES: Severity[] = ['error', 'warning', 'note'];
/** Those of the report's verdicts. */
const SIGNS = { error: '✗', warning: '!', note: '·' };
const NEAR_PX = 10;
const AFTER_MS = 200;

/** What this module needs of the layer that draws: the findings of an editor, and how a fix is written into it. */
export interface Layer {
  squiggles(state: EditorState): Squiggle[];
  apply(view: EditorView, fix: Fix): void;
}

interface Card {
  pos: number;
  squiggles: Squiggle[];
}

const setCard = StateEffect.define<Card | null>();
const setListed = StateEffect.define<boolean>();

/** The card, the list and the keys for both, for the editors of one layer. */
export function messages(layer: Layer): Extension {
  const card = StateField.define<Card | null>({
    create: () => null,
    update(value, tr) {
      for (const effect of tr.effects) {
        if (effect.is(setCard)) {
          return effect.value;
        }
      }
      return tr.docChanged || tr.selection ? null : value;
    },
    provide: field =>
      showTooltip.from(field, shown =>
        shown === null
          ? null
          : {
              pos: shown.pos,
              create: view => ({ dom: cards(view, shown.squiggles, layer), getCoords: pos => inSight(view, pos) })
            }
      )
  });
  const listed = StateField.define<boolean>({
    create: () => false,
    update(value, tr) {
      for (const effect of tr.effects) {
        if (effect.is(setListed)) {
          return effect.value;
        }
      }
      return value && !tr.docChanged;
    },
    provide: field => showPanel.from(field, on => (on ? view => list(view, layer) : null))
  });
  const keys: KeyBinding[] = [
    { key: 'F8', run: view => next(view, layer) },
    { key: 'Mod-Shift-m', run: view => openList(view) },
    { key: 'Escape', run: view => view.state.field(card) !== null && close(view) }
  ];
  return [card, listed, keymap.of(keys)];
}

/** Where a position stands; where its line is scrolled sideways, the edge that it lies behind: no card is shown for what is out of sight. */
function inSight(view: EditorView, pos: number): Rect {
  const { top, bottom, left } = view.coordsAtPos(pos)!;
  const seen = view.scrollDOM.getBoundingClientRect();
  const at = Math.min(Math.max(left, seen.left), seen.right);
  return { top, bottom, left: at, right: at };
}

/** Icons of the findings beside their lines; pointing at one shows its message. */
export function icons(layer: Layer): Extension {
  return gutter({
    class: 'cm-gutter-lint',
    markers: view => markers(view.state, layer),
    domEventHandlers: {
      mouseover: (view, block, event) => {
        const icon = event.target instanceof Element ? event.target.closest('.cm-lint-marker') : null;
        const here = layer.squiggles(view.state).filter(s => block.from <= s.from && s.from <= block.to);
        if (icon && here.length) {
          pointAt(view, icon, { pos: here[0].from, squiggles: here });
        }
        return false;
      }
    }
  });
}

/** Open the list of an editor's findings, with the focus in it. */
export function openList(view: EditorView): boolean {
  view.dispatch({ effects: setListed.of(true) });
  // After the notebook, which focuses the text at every key that it hears.
  window.setTimeout(() => {
    const shown = view.dom.querySelector<HTMLElement>('.jm-list');
    shown?.querySelector('button')?.focus({ preventScroll: true });
    shown?.scrollIntoView({ block: 'nearest' });
  });
  return true;
}

/** Go to the next finding behind the cursor, the first one after the last, and show its message there. */
function next(view: EditorView, layer: Layer): boolean {
  const all = layer.squiggles(view.state);
  if (!all.length) {
    return false;
  }
  show(view, all.find(s => s.from > view.state.selection.main.head) ?? all[0]);
  return true;
}

function show(view: EditorView, squiggle: Squiggle): void {
  view.focus();
  view.dispatch({
    selection: { anchor: squiggle.from },
    scrollIntoView: true,
    effects: setCard.of({ pos: squiggle.from, squiggles: [squiggle] })
  });
}

function close(view: EditorView): boolean {
  view.dispatch({ effects: setCard.of(null) });
  return true;
}

function pointAt(view: EditorView, icon: Element, shown: Card): void {
  const timer = window.setTimeout(() => view.dispatch({ effects: setCard.of(shown) }), AFTER_MS);
  const moved = (event: MouseEvent) => {
    const { left, right, top, bottom } = icon.getBoundingClientRect();
    const near =
      event.clientX > left - NEAR_PX && event.clientX < right + NEAR_PX && event.clientY > top - NEAR_PX && event.clientY < bottom + NEAR_PX;
    if (!near && !(event.target instanceof Element && event.target.closest('.cm-tooltip'))) {
      window.clearTimeout(timer);
      window.removeEventListener('mousemove', moved);
      close(view);
    }
  };
  window.addEventListener('mousemove', moved);
}

function cards(view: EditorView, squiggles: Squiggle[], layer: Layer): HTMLElement {
  const dom = document.createElement('ul');
  dom.className = 'cm-tooltip-lint';
  dom.setAttribute('role', 'status');
  dom.dataset.lmSuppressShortcuts = 'true';
  dom.append(...squiggles.map(s => item(view, s, layer)));
  return dom;
}

/** A finding with the buttons of its fixes. */
function item(view: EditorView, squiggle: Squiggle, layer: Layer): HTMLElement {
  const { finding } = squiggle;
  const dom = document.createElement('li');
  dom.className = `cm-diagnostic cm-diagnostic-${finding.severity === 'note' ? 'info' : finding.severity}`;
  dom.append(tooltip(finding, view.state.doc.toString()));
  const fixes = finding.fixes.filter(canApply);
  fixes.forEach((fix, i) =>
    dom.append(
      button('cm-diagnosticAction', actionName(fix, i, fixes.length), () => {
        layer.apply(view, fix);
        view.focus();
      })
    )
  );
  return dom;
}

function list(view: EditorView, layer: Layer): { dom: HTMLElement; update(update: ViewUpdate): void } {
  const dom = document.createElement('div');
  dom.className = 'jm-list';
  dom.setAttribute('role', 'region');
  dom.setAttribute('aria-label', "jitmagic's findings in this cell");
  dom.dataset.lmSuppressShortcuts = 'true';
  const shut = () => {
    view.dispatch({ effects: setListed.of(false) });
    view.focus();
  };
  // Hearing of it, the notebook would take the focus back for the editor's text.
  dom.addEventListener('focusin', event => event.stopPropagation());
  dom.addEventListener('keydown', event => {
    event.stopPropagation(); // the editor's own keys
    if (event.key === 'Escape') {
      event.preventDefault();
      shut();
    }
  });
  let drawn: Squiggle[] | null = null;
  const draw = () => {
    const all = layer.squiggles(view.state);
    if (all === drawn) {
      return;
    }
    drawn = all;
    const rows = document.createElement('ol');
    const worstFirst = [...all].sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
    rows.append(
      ...worstFirst.map(s => {
        const row = item(view, s, layer);
        row.prepend(button('jm-goto', `line ${view.state.doc.lineAt(s.from).number}`, () => show(view, s)));
        return row;
      })
    );
    const head = document.createElement('div');
    head.className = 'jm-list-head';
    head.append(button('jm-close', 'close', shut), all.length ? '' : ' no findings in this cell');
    dom.replaceChildren(head, rows);
  };
  draw();
  return { dom, update: draw };
}

export function button(className: string, name: string, act: () => void): HTMLButtonElement {
  const dom = document.createElement('button');
  dom.type = 'button';
  dom.className = className;
  dom.textContent = name;
  dom.addEventListener('click', act);
  return dom;
}

class Icon extends GutterMarker {
  constructor(
    private severity: Severity,
    private words: string
  ) {
    super();
  }

  eq(other: Icon): boolean {
    return other.severity === this.severity && other.words === this.words;
  }

  toDOM(): HTMLElement {
    const dom = document.createElement('div');
    dom.className = `cm-lint-marker cm-lint-marker-${this.severity === 'note' ? 'info' : this.severity}`;
    dom.setAttribute('role', 'img');
    dom.setAttribute('aria-label', this.words);
    dom.textContent = SIGNS[this.severity];
    return dom;
  }
}

function markers(state: EditorState, layer: Layer): RangeSet<GutterMarker> {
  const byLine = new Map<number, Squiggle[]>();
  for (const squiggle of layer.squiggles(state)) {
    if (squiggle.from <= state.doc.length) {
      const line = state.doc.lineAt(squiggle.from).from;
      byLine.set(line, [...(byLine.get(line) ?? []), squiggle]);
    }
  }
  const found: Range<GutterMarker>[] = [...byLine].map(([line, all]) => {
    const worst = SEVERITIES.find(severity => all.some(s => s.severity === severity))!;
    return new Icon(worst, all.map(s => `${s.finding.severity}: ${s.finding.message}`).join('; ')).range(line);
  });
  return RangeSet.of(found, true);
}
