/** jitmagic in the editor: squiggles, hovers, fixes, line heat and notes from the reports in a notebook. */

import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { apply, fixAt, hasMarks } from './layer';
import { addStyles, nameSwitches, serveButtons } from './panel';
import { listen } from './requests';
import { openList } from './shown';
import { NotebookWatch, Options, viewOf } from './watch';

const ID = 'jitmagic:plugin';
const TOGGLE = 'jitmagic:toggle-marks';
const FIX = 'jitmagic:apply-fix';
const LIST = 'jitmagic:list-findings';

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: "Shows jitmagic's reports in the code cells they are about.",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ISettingRegistry, ICommandPalette],
  activate
};

function activate(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  registry: ISettingRegistry | null,
  palette: ICommandPalette | null
): void {
  const options: Options = { enabled: true, squiggles: true, notes: true, constants: true, heat: true, gutter: true };
  const watches = new Set<NotebookWatch>();
  let settings: ISettingRegistry.ISettings | null = null;

  addStyles();
  const redraw = () => watches.forEach(watch => watch.schedule());
  tracker.widgetAdded.connect((_, panel) => {
    const watch = new NotebookWatch(panel, () => options);
    watches.add(watch);
    serveButtons(panel);
    nameSwitches(panel);
    listen(panel, tracker);
    panel.disposed.connect(() => watches.delete(watch));
  });

  const view = () => viewOf(tracker.activeCell);
  app.commands.addCommand(TOGGLE, {
    label: 'Show jitmagic Marks in Cells',
    isToggleable: true,
    isToggled: () => options.enabled,
    execute: async () => {
      options.enabled = !options.enabled;
      app.commands.notifyCommandChanged(TOGGLE);
      redraw();
      await settings?.set('enabled', options.enabled);
    }
  });
  app.commands.addCommand(FIX, {
    label: 'Apply the jitmagic Fix to the Cell',
    caption: 'Write the tested fix of the finding at the cursor, or of the first one, into the active cell',
    isEnabled: () => {
      const editor = view();
      return editor !== null && fixAt(editor) !== null;
    },
    execute: () => {
      const editor = view();
      const fix = editor && fixAt(editor);
      if (editor && fix) {
        apply(editor, fix);
      }
    }
  });
  app.commands.addCommand(LIST, {
    label: "List the Cell's jitmagic Findings",
    isEnabled: () => view() !== null && hasMarks(view()!),
    execute: () => {
      const editor = view();
      if (editor) {
        openList(editor);
      }
    }
  });
  for (const command of [TOGGLE, FIX, LIST]) {
    palette?.addItem({ command, category: 'jitmagic' });
  }

  const follow = (loaded: ISettingRegistry.ISettings) => {
    for (const name of Object.keys(options) as (keyof Options)[]) {
      options[name] = loaded.get(name).composite !== false;
    }
    app.commands.notifyCommandChanged(TOGGLE);
    redraw();
  };
  registry
    ?.load(ID)
    .then(loaded => {
      settings = loaded;
      loaded.changed.connect(follow);
      follow(loaded);
    })
    .catch(reason => console.warn('jitmagic: no settings, the defaults hold', reason));
}

export default plugin;
