/** What the kernel asks of the notebook (jitmagic/frontend.py), over a comm of its own. */

import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

const TARGET = 'jitmagic';

/** Of several notebooks on one kernel only one connection hears it, so any of them may be meant. */
export function listen(panel: NotebookPanel, tracker: INotebookTracker): void {
  const register = () => {
    panel.sessionContext.session?.kernel?.registerCommTarget(TARGET, (comm, message) => {
      const asked = (message.content.data as { insert_below?: { cell?: unknown; text?: unknown } }).insert_below;
      const kernel = panel.sessionContext.session?.kernel?.id;
      if (kernel && typeof asked?.text === 'string') {
        tracker.filter(one => one.sessionContext.session?.kernel?.id === kernel).some(one => insertBelow(one, asked.cell, asked.text as string));
      }
      void comm.close();
    });
  };
  panel.sessionContext.kernelChanged.connect(register);
  register();
}

/** A new code cell after the one of this id, unless the next one reads so already; whether the notebook has that cell. */
function insertBelow(panel: NotebookPanel, id: unknown, text: string): boolean {
  const cells = panel.content.widgets;
  const index = cells.findIndex(cell => cell.model.id === id);
  if (index >= 0 && cells[index + 1]?.model.sharedModel.getSource() !== text) {
    panel.content.model?.sharedModel.insertCell(index + 1, { cell_type: 'code', source: text, metadata: { trusted: true } });
  }
  return index >= 0;
}
