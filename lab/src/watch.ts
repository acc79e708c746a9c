/** Watching one notebook: which reports lie in its outputs, and which cells they speak of. */

import { Cell, ICellModel, ICodeCellModel } from '@jupyterlab/cells';
import type { CodeMirrorEditor } from '@jupyterlab/codemirror';
import { NotebookPanel } from '@jupyterlab/notebook';
import type { EditorView } from '@codemirror/view';

import { Lying, serve } from './actions';
import { isNameOf } from './codename';
import { show } from './layer';
import { Marks, Source, Wanted, marksFor } from './marks';
import { Report, read } from './report';

export interface Options extends Wanted {
  enabled: boolean;
  gutter: boolean;
}

const AFTER_MS = 80;
/** What a report has for us to work on. */
const SERVED = '.jm-fix, .jm-place';
const NOTHING: Marks = { squiggles: [], heat: [], notes: [] };

export class NotebookWatch {
  private timer = 0;
  /** What was drawn last in each cell, to leave alone what did not change. */
  private last = new WeakMap<ICellModel, { key: string; view: EditorView; doc: unknown }>();
  private awaited = new WeakSet<Cell>();

  /** A report's HTML is drawn some time after its output has come; it is served before it can be seen. */
  private reports = new MutationObserver(changes => {
    const come = changes.flatMap(change => [...change.addedNodes]).filter(node => node instanceof Element);
    const found = come.filter(node => node.matches(SERVED) || node.querySelector(SERVED));
    if (found.length && !this.panel.isDisposed) {
      const texts = this.texts();
      [...texts.keys()]
        .filter(cell => found.some(node => cell.node.contains(node)))
        .forEach(cell => reportsIn(cell, texts).forEach(lying => this.serve(lying)));
    }
  });

  constructor(
    private panel: NotebookPanel,
    private options: () => Options
  ) {
    void panel.context.ready.then(() => {
      if (!panel.isDisposed) {
        panel.content.modelContentChanged.connect(this.schedule, this);
        this.reports.observe(panel.content.node, { childList: true, subtree: true });
        this.schedule();
      }
    });
    panel.disposed.connect(() => {
      window.clearTimeout(this.timer);
      this.reports.disconnect();
    });
  }

  /** Draw soon; many changes at once are drawn once. */
  schedule(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.draw(), AFTER_MS);
  }

  private draw(): void {
    if (this.panel.isDisposed) {
      return;
    }
    const options = this.options();
    const texts = this.texts();
    const found = [...texts.keys()].flatMap(cell => reportsIn(cell, texts));
    const shown = options.enabled ? found : [];
    for (const [cell, text] of texts) {
      const sources: Source[] = shown.map(({ report, owner, trusted }) => ({ report, own: owner === cell, trusted }));
      const marks = shown.length ? marksFor(text, sources, name => isNameOf(name, text), options) : NOTHING;
      this.drawCell(cell, marks, options.gutter);
    }
    found.forEach(lying => this.serve(lying));
  }

  private serve(lying: Lying): void {
    const { enabled, squiggles } = this.options();
    serve(this.panel, lying, viewOf, enabled && squiggles);
  }

  /** The texts of all code cells. */
  private texts(): Map<Cell, string> {
    const cells = this.panel.content.widgets.filter(cell => cell.model.type === 'code');
    return new Map(cells.map(cell => [cell, cell.model.sharedModel.getSource()]));
  }

  private drawCell(cell: Cell, marks: Marks, gutter: boolean): void {
    const view = viewOf(cell);
    if (!view) {
      // An editor is made when its cell scrolls into sight.
      if (!this.awaited.has(cell)) {
        this.awaited.add(cell);
        void cell.ready.then(() => this.schedule());
      }
      return;
    }
    const key = JSON.stringify([marks, gutter]);
    const last = this.last.get(cell.model);
    if (last?.key === key && last.view === view && last.doc === view.state.doc) {
      return;
    }
    show(view, marks, gutter);
    this.last.set(cell.model, { key, view, doc: view.state.doc });
  }
}

/** The CodeMirror view of a cell, once there is one. */
export function viewOf(cell: Cell | null): EditorView | null {
  return (cell?.editor as CodeMirrorEditor | null | undefined)?.editor ?? null;
}

/** The reports among a cell's outputs; `%jitcheck` may have left several. */
function reportsIn(cell: Cell, texts: Map<Cell, string>): Lying[] {
  const { outputs, trusted } = cell.model as ICodeCellModel;
  const found: Lying[] = [];
  for (let output = 0; output < outputs.length; output++) {
    const report = read(outputs.get(output).data);
    if (report) {
      found.push({ report, shownBy: cell, output, owner: owner(report, cell, texts), trusted });
    }
  }
  return found;
}

/**
 * The cell that a report is about, of those with its text: the one that shows it (it may be a copy), the one with its id,
 * any; none once it was edited.
 */
function owner(report: Report, shownBy: Cell, texts: Map<Cell, string>): Cell | null {
  const same = [...texts].filter(([, text]) => trimmed(text) === trimmed(report.cell.source)).map(([cell]) => cell);
  return same.find(cell => cell === shownBy) ?? same.find(cell => cell.model.id === report.cell.id) ?? same[0] ?? null;
}

function trimmed(text: string): string {
  return text.replace(/\s+$/, '');
}
