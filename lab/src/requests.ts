/** What the kernel asks of the notebook (jitmagic/frontend.py), over a comm of its own. */

import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

const TARGET = 'jitmagic';

/** A cell to put below another one, which its id and its text tell. */
interface InsertBelow {
  cell?: unknown;
  source?: unknown;
  text?: unknown;
}

/** Of several notebooks on one kernel only one connection hears it, so any of them may be meant. */
export function listen(panel: NotebookPanel, tracker: INotebookTracker): void {
  const register = () => {
    panel.sessionContext.session?.kernel?.registerCommTarget(TARGET, (comm, message) => {
      const asked = (message.content.data as { insert_below?: InsertBelow }).insert_below;
      const kernel = panel.sessionContext.session?.kernel?.id;
      if (kernel && asked) {
        tracker.filter(one => one.sessionContext.session?.kernel?.id === kernel).some(one => insertBelow(one, asked));
      }
      void comm.close();
    });
  };
  panel.sessionContext.kernelChanged.connect(register);
  register();
}

/** A new code cell below, unless the next one reads so already; whether the notebook has the cell above. */
function insertBelow(panel: NotebookPanel, { cell, source, text }: InsertBelow): boolean {
  const texts = panel.content.widgets.map(one => one.model.sharedModel.getSource());
  const index = panel.content.widgets.findIndex((one, i) => one.model.id === cell && texts[i] === source);
  if (index >= 0 && typeof text === 'string' && texts[index + 1] !== text) {
    panel.content.model?.sharedModel.insertCell(index + 1, { cell_type: 'code', source: text, metadata: { trusted: true } });
  }
  return index >= 0;
}
