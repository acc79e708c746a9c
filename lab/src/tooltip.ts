/** What the hover over a squiggle shows. Everything of the report's is set as text, never as HTML. */

import { diff } from './diff';
import { applied, canApply } from './fix';
import { Finding, Fix } from './report';

const MESSAGE = 800;

export function tooltip(finding: Finding, text: string): HTMLElement {
  const dom = element('div', 'jm-tip');
  const head = element('div', 'jm-tip-head');
  head.append(element('b', `jm-${finding.severity}-word`, `${finding.severity}[${finding.code}]`), ` ${finding.kind}`);
  dom.append(head, prose('jm-tip-message', finding.message));
  const [first, ...more] = finding.culprits;
  if (first && !finding.culprits.some(name => finding.message.includes(`\`${name}`))) {
    dom.append(prose('jm-tip-row', `look at: \`${first}\`${more.length ? ` and ${more.length} more` : ''}`));
  }
  const fixes = finding.fixes.filter(canApply);
  fixes.forEach((fix, i) => dom.append(...described(fix, fixes.length > 1 ? `fix ${i + 1}` : 'fix', text)));
  if (!fixes.length && finding.help) {
    dom.append(prose('jm-tip-row', `help: ${finding.help}`));
  }
  return dom;
}

/** What the button of a fix is called; the fix itself stands above it. */
export function actionName(fix: Fix, index: number, count: number): string {
  const which = count > 1 ? ` fix ${index + 1}` : '';
  return fix.applicability === 'safe' ? `Apply${which}` : `Apply${which} (read it first)`;
}

function described(fix: Fix, name: string, text: string): HTMLElement[] {
  const title = prose('jm-tip-row', fix.title);
  title.prepend(element('b', 'jm-fix-word', `${name}: `));
  const proof = fix.evidence ? `tested: ${fix.evidence}` : 'tested by a new run';
  const caution = fix.applicability === 'safe' ? '' : '; may change results or calls';
  return [title, changes(text, applied(text, fix)), element('div', 'jm-tip-proof', proof + caution)];
}

/** All lines that go and come: nothing is applied that was not shown. */
function changes(before: string, after: string): HTMLElement {
  const pre = element('pre', 'jm-tip-code');
  const classes = { '-': 'jm-gone', '+': 'jm-come', '…': '' };
  pre.append(...diff(before, after).map(([sign, text]) => element('div', classes[sign], sign + text)));
  return pre;
}

/** Text in which what stands between two backticks is code. */
function prose(className: string, text: string): HTMLElement {
  const dom = element('div', className);
  const short = text.length > MESSAGE ? `${text.slice(0, MESSAGE)}…` : text;
  short.split(/`([^`\n]+)`/).forEach((piece, i) => dom.append(i % 2 ? element('code', '', piece) : visible(piece)));
  return dom;
}

/** What a reader would not see, or would see elsewhere: control characters, marks of direction. */
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** The text with what can't be seen as an escape of Python's. */
function visible(text: string): string {
  return text.replace(UNSEEN, char => {
    const code = char.charCodeAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
  });
}

function element(tag: string, className: string, text = ''): HTMLElement {
  const dom = document.createElement(tag);
  if (className) {
    dom.className = className;
  }
  dom.textContent = visible(text);
  return dom;
}
