/** The buttons of the panel (jitmagic/panel/markup.py) that a kernel can't serve: writing into a cell, and copying. */

import type { Cell, ICellModel } from '@jupyterlab/cells';
import { NotebookPanel } from '@jupyterlab/notebook';

import { change } from './fix';
import { PAGE } from './theme';
import { viewOf } from './watch';

/** What we wrote last into a cell, which the kernel does not know yet. */
const written = new WeakMap<ICellModel, string>();

/** Styles of what stands outside of the editors; the panel's buttons are hidden where nobody serves them. */
export function addStyles(): void {
  const style = document.createElement('style');
  style.textContent = `button.jm-write[hidden], button.jm-copy[hidden] { display: inline-block; }\n${CHOSEN}\n${PAGE}`;
  document.head.append(style);
}

/** What the widgets of the panel do not say: which of a row's buttons is chosen, and what the row is about. */
export function nameSwitches(panel: NotebookPanel): void {
  const panels = panel.node.getElementsByClassName('jm-panel'); // kept up to date by the browser
  const name = (): void => {
    const groups = [...panels].flatMap(one => [...one.querySelectorAll<HTMLElement>('.widget-toggle-buttons')]);
    for (const group of groups) {
      const path = group.parentElement?.querySelector('code')?.textContent ?? '';
      set(group, 'role', 'group');
      set(group, 'aria-label', path);
      for (const button of group.querySelectorAll<HTMLElement>('button')) {
        set(button, 'aria-pressed', String(button.classList.contains('mod-active')));
      }
      const box = group.parentElement?.querySelector('input[type=text]');
      if (box) {
        set(box, 'aria-label', `shape and dtype of ${path}`);
      }
    }
  };
  new MutationObserver(name).observe(panel.node, { subtree: true, childList: true, attributeFilter: ['class'] });
}

function set(element: Element, attribute: string, value: string): void {
  if (element.getAttribute(attribute) !== value) {
    element.setAttribute(attribute, value);
  }
}

/** The chosen button, in both themes. */
const CHOSEN = `.jm-panel .widget-toggle-button.mod-active {
  background: var(--jp-brand-color1); color: var(--jp-ui-inverse-font-color1); font-weight: 600; }`;

export function serveButtons(panel: NotebookPanel): void {
  panel.node.addEventListener('click', event => {
    const target = event.target instanceof Element ? event.target.closest<HTMLElement>('button.jm-write, button.jm-copy') : null;
    if (target?.classList.contains('jm-write')) {
      const done = write(panel, target.dataset.jmCell ?? '', target.dataset.jmBefore ?? '', target.dataset.jmAfter ?? '');
      target.textContent = done ? 'written: run the cell again' : 'not written: the cell was edited since';
    } else if (target) {
      void copy(target.dataset.jmText ?? '').then(done => (target.textContent = done ? 'copied' : 'not copied: select the text'));
    }
  });
}

/** A page that is served without https from another machine has no `clipboard`. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/** Put `after` into the cell that still reads `before`; whether it was found. One undo takes it back. */
function write(panel: NotebookPanel, id: string, before: string, after: string): boolean {
  const same = panel.content.widgets.filter(cell => known(cell, before));
  const cell = same.find(one => one.model.id === id) ?? same[0];
  if (!cell || !after) {
    return false;
  }
  const text = cell.model.sharedModel.getSource();
  const view = viewOf(cell);
  if (view) {
    view.dispatch({ changes: change(text, after), userEvent: 'input.jitmagic' });
  } else {
    cell.model.sharedModel.setSource(after);
  }
  written.set(cell.model, after);
  panel.content.activeCellIndex = panel.content.widgets.indexOf(cell);
  return true;
}

function known(cell: Cell, before: string): boolean {
  const text = cell.model.sharedModel.getSource();
  return text.trimEnd() === before.trimEnd() || text === written.get(cell.model);
}
