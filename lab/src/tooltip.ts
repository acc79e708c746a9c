/** What the hover over a squiggle shows. Everything of the report's is set as text, never as HTML. */

import { canApply } from './fix';
import { Finding, Fix } from './report';

const MESSAGE = 800;
const CODE_LINES = 14;

export function tooltip(finding: Finding): HTMLElement {
  const dom = element('div', 'jm-tip');
  const head = element('div', 'jm-tip-head');
  head.append(element('b', `jm-${finding.severity}-word`, `${finding.severity}[${finding.code}]`), ` ${finding.kind}`);
  dom.append(head, prose('jm-tip-message', finding.message));
  if (finding.culprits.length) {
    dom.append(prose('jm-tip-row', `look at: ${finding.culprits.slice(0, 4).map(name => `\`${name}\``).join(', ')}`));
  }
  const fixes = finding.fixes.filter(canApply);
  for (const fix of fixes) {
    dom.append(...described(fix));
  }
  if (!fixes.length && finding.help) {
    dom.append(prose('jm-tip-row', `help: ${finding.help}`));
  }
  return dom;
}

function described(fix: Fix): HTMLElement[] {
  const proof = fix.evidence ? `proved: ${fix.evidence}` : 'proved by a new run';
  const parts = [prose('jm-tip-row', `fix: ${fix.title}`), prose('jm-tip-proof', proof)];
  if (fix.cell !== null) {
    const lines = fix.cell.replace(/\n$/, '').split('\n');
    const shown = lines.slice(0, CODE_LINES).join('\n') + (lines.length > CODE_LINES ? '\n…' : '');
    const details = document.createElement('details');
    details.append(element('summary', '', 'the corrected cell'), element('pre', 'jm-tip-code', shown));
    parts.push(details);
  }
  return parts;
}

/** Text in which what stands between two backticks is code. */
function prose(className: string, text: string): HTMLElement {
  const dom = element('div', className);
  const short = text.length > MESSAGE ? `${text.slice(0, MESSAGE)}…` : text;
  short.split(/`([^`\n]+)`/).forEach((piece, i) => dom.append(i % 2 ? element('code', '', piece) : piece));
  return dom;
}

function element(tag: string, className: string, text = ''): HTMLElement {
  const dom = document.createElement(tag);
  if (className) {
    dom.className = className;
  }
  dom.textContent = text;
  return dom;
}
