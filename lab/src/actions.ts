/** Buttons in the report itself: they write a fix into the cell that the report is about, and run it. */

import { Cell, CodeCell } from '@jupyterlab/cells';
import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import type { EditorView } from '@codemirror/view';

import { applied, canApply } from './fix';
import { apply } from './layer';
import { Fix, Report } from './report';

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

/** Serve the places for buttons that jitmagic/render/html.py leaves beside each fix, and say what is old. */
export function serve(panel: NotebookPanel, lying: Lying, viewOf: (cell: Cell) => EditorView | null): void {
  const child = (lying.shownBy as CodeCell).outputArea?.widgets[lying.output]?.node;
  const area = child?.querySelector<HTMLElement>('.jp-OutputArea-output');
  if (!area) {
    return;
  }
  const { report, owner, trusted } = lying;
  note(area, !trusted ? STRANGE : owner ? '' : OLD);
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

function buttons(panel: NotebookPanel, owner: Cell, fix: Fix, viewOf: (cell: Cell) => EditorView | null): HTMLElement[] {
  const write = () => {
    const view = viewOf(owner);
    if (view) {
      apply(view, fix);
    } else {
      owner.model.sharedModel.setSource(applied(owner.model.sharedModel.getSource(), fix));
    }
    panel.content.deselectAll();
    panel.content.activeCellIndex = panel.content.widgets.indexOf(owner);
    void panel.content.scrollToCell(owner);
  };
  const read = fix.applicability === 'safe' ? '' : ' (read it first)';
  return [
    button(`Apply${read}`, write),
    button('Apply and run', () => {
      write();
      void NotebookActions.run(panel.content, panel.sessionContext);
    })
  ];
}

function button(name: string, act: () => void): HTMLElement {
  const dom = document.createElement('button');
  dom.type = 'button';
  dom.className = 'jm-action';
  dom.textContent = name;
  dom.addEventListener('click', act);
  return dom;
}

/** One line above the report, or none. */
function note(area: HTMLElement, words: string): void {
  const old = area.querySelector('.jm-report-note');
  if (old?.textContent === words || (!old && !words)) {
    return;
  }
  old?.remove();
  if (words) {
    const dom = document.createElement('div');
    dom.className = 'jm-report-note';
    dom.setAttribute('role', 'note');
    dom.textContent = words;
    area.prepend(dom);
  }
}
