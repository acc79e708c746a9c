/** What the kernel asks of the notebook (jitmagic/frontend.py), over a comm of its own. */

import { NotebookPanel } from '@jupyterlab/notebook';

const TARGET = 'jitmagic';

export function listen(panel: NotebookPanel): void {
  const register = () => {
    panel.sessionContext.session?.kernel?.registerCommTarget(TARGET, (comm, message) => {
      const data = message.content.data as { insert_below?: { cell?: unknown; text?: unknown } };
      if (!panel.isDisposed && typeof data.insert_below?.text === 'string') {
        insertBelow(panel, data.insert_below.cell, data.insert_below.text);
      }
      void comm.close();
    });
  };
  panel.sessionContext.kernelChanged.connect(register);
  register();
}

/** A new code cell after the one of this id; none where the next one reads so already. */
function insertBelow(panel: NotebookPanel, id: unknown, text: string): void {
  const cells = panel.content.widgets;
  const index = cells.findIndex(cell => cell.model.id === id);
  if (index >= 0 && cells[index + 1]?.model.sharedModel.getSource() !== text) {
    panel.content.model?.sharedModel.insertCell(index + 1, { cell_type: 'code', source: text, metadata: { trusted: true } });
  }
}
