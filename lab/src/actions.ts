/** The report itself beside its cell: buttons that write a fix there and run it, links to its lines, no second copy of it. */

import { Cell, CodeCell } from '@jupyterlab/cells';
import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import type { EditorView } from '@codemirror/view';

import { applied, canApply } from './fix';
import { apply, goTo } from './layer';
import { Fix, Report } from './report';
import { button } from './shown';

const OLD = 'The cell was edited after this report: run it again for a new one.';
const STRANGE = 'Saved report, not checked here: run the cell for one whose fixes can be applied.';

/** One report among the outputs of a cell. */
export interface Lying {
  report: Report;
  shownBy: Cell;
  /** Its place among the outputs. */
  output: number;
  /** The cell that it is about, with the text that it is about. */
  owner: Cell | null;
  trusted: boolean;
}

/** Below a cell that is marked, the report's own copy of it is there for screen readers and to be copied alone. */
const MARKED = 'jm-marked';
const ACTION = 'jm-action';

type ViewOf = (cell: Cell) => EditorView | null;

/**
 * Serve the places for buttons that jitmagic/render/html.py leaves beside each fix, and say what is old; where the cell
 * above is `marked`, its lines are not shown once more.
 */
export function serve(panel: NotebookPanel, lying: Lying, viewOf: ViewOf, marked: boolean): void {
  const child = (lying.shownBy as CodeCell).outputArea?.widgets[lying.output]?.node;
  const area = child?.querySelector<HTMLElement>('.jp-OutputArea-output');
  if (!area) {
    return;
  }
  const { report, owner, shownBy, trusted } = lying;
  // What was hidden stays so when the cell is edited: nothing jumps below the line that is being typed.
  hideSource(area, marked && (owner === shownBy || (owner === null && area.classList.contains(MARKED))));
  note(area, !trusted ? STRANGE : owner ? '' : OLD, owner === null && area.classList.contains(MARKED));
  if (owner) {
    link(area, line => void goToLine(panel, owner, viewOf, line));
  }
  for (const place of area.querySelectorAll<HTMLElement>('.jm-fix')) {
    const [finding, number] = (place.dataset.fix ?? '').split('.').map(Number);
    const fix = report.findings[finding]?.fixes[number];
    const live = trusted && owner !== null && fix !== undefined && canApply(fix);
    const state = live ? `${finding}.${number} ${owner.model.id}` : '';
    if ((place.dataset.state ?? '') !== state) {
      place.dataset.state = state;
      place.replaceChildren(...(live ? buttons(panel, owner, fix, viewOf) : []));
    }
  }
}

/** Hide the lines of the cell in a report, or show them. */
function hideSource(area: HTMLElement, hidden: boolean): void {
  area.classList.toggle(MARKED, hidden);
  for (const lines of area.querySelectorAll<HTMLElement>('.jm-source[tabindex]')) {
    lines.tabIndex = hidden ? -1 : 0;
  }
}

/** Let the places that a report names be pressed. */
function link(area: HTMLElement, go: (line: number) => void): void {
  for (const place of area.querySelectorAll<HTMLElement>('.jm-place:not([role])')) {
    const line = Number(/\d+/.exec(place.textContent ?? '')?.[0]);
    place.setAttribute('role', 'link');
    place.tabIndex = 0;
    place.addEventListener('click', () => go(line));
    place.addEventListener('keydown', event => {
      if (event.key === 'Enter') {
        event.preventDefault();
        event.stopPropagation();
        go(line);
      }
    });
  }
}

/** Make a cell the active one, in sight. */
async function atCell(panel: NotebookPanel, cell: Cell): Promise<void> {
  panel.content.deselectAll();
  panel.content.activeCellIndex = panel.content.widgets.indexOf(cell);
  await panel.content.scrollToCell(cell);
}

async function goToLine(panel: NotebookPanel, cell: Cell, viewOf: ViewOf, line: number): Promise<void> {
  await atCell(panel, cell);
  const view = viewOf(cell);
  if (view) {
    goTo(view, line);
  }
}

function buttons(panel: NotebookPanel, owner: Cell, fix: Fix, viewOf: ViewOf): HTMLElement[] {
  const write = () => {
    const view = viewOf(owner);
    if (view) {
      apply(view, fix);
    } else {
      owner.model.sharedModel.setSource(applied(owner.model.sharedModel.getSource(), fix));
    }
    void atCell(panel, owner);
  };
  const read = fix.applicability === 'safe' ? '' : ' (read it first)';
  return [
    button(ACTION, `Apply${read}`, write),
    button(ACTION, 'Apply and run', () => {
      write();
      void NotebookActions.run(panel.content, panel.sessionContext);
    })
  ];
}

/** One line above the report, or none; a button brings what is `hidden` of it. */
function note(area: HTMLElement, words: string, hidden: boolean): void {
  const old = area.querySelector('.jm-report-note');
  if ((old?.firstChild?.textContent ?? '') === words && (old?.children.length === 1) === hidden) {
    return;
  }
  old?.remove();
  if (words) {
    const dom = document.createElement('div');
    dom.className = 'jm-report-note';
    dom.setAttribute('role', 'note');
    dom.append(words);
    if (hidden) {
      const show = button(ACTION, 'Show its code', () => {
        hideSource(area, false);
        show.remove();
      });
      dom.append(show);
    }
    area.prepend(dom);
  }
}
