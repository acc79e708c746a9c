/** Colours and spacing of the marks, in the variables of the lab's theme. */

import { EditorView } from '@codemirror/view';

/** A wave of 6 by 3 pixels in `color`. */
function wave(color: string): string {
  const path = `<path d='m0 2.5 l2 -1.5 l1 0 l2 1.5 l1 0' stroke='${color}' fill='none' stroke-width='1.1'/>`;
  return `url("data:image/svg+xml,${encodeURIComponent(`<svg xmlns='http://www.w3.org/2000/svg' width='6' height='3'>${path}</svg>`)}")`;
}

/** Colours of words on a light and on a dark background: those of the report, jitmagic/render/html.py. */
const WORDS = { error: ['#a50e0e', '#ff9a90'], warning: ['#6b4500', '#f7c46c'], note: ['#174ea6', '#9ec3ff'] };
const FIXED = ['#0d5223', '#86dca0'];
const DARK = 'body[data-jp-theme-light="false"] &';

export const theme = EditorView.theme({
  '.cm-lintRange-error': { backgroundImage: wave('#e0352b') },
  '.cm-lintRange-warning': { backgroundImage: wave('#d98c00') },
  '.cm-lintRange-info': { backgroundImage: wave('#4f86e8') },
  '.cm-gutter-lint': { width: '16px' },
  '.cm-gutter-lint .cm-gutterElement': { padding: '0 2px', display: 'flex', alignItems: 'center' },
  '.cm-lint-marker': { width: '12px', textAlign: 'center', fontWeight: 'bold', lineHeight: '1.2', cursor: 'default' },
  '.cm-lint-marker-error': { color: WORDS.error[0] },
  '.cm-lint-marker-warning': { color: WORDS.warning[0] },
  '.cm-lint-marker-info': { color: WORDS.note[0] },
  [`${DARK} .cm-lint-marker-error`]: { color: WORDS.error[1] },
  [`${DARK} .cm-lint-marker-warning`]: { color: WORDS.warning[1] },
  [`${DARK} .cm-lint-marker-info`]: { color: WORDS.note[1] },
  '.jm-heat-gutter': { width: '14px' },
  '.jm-heat-gutter .cm-gutterElement': { padding: '2px 1px', display: 'flex', alignItems: 'stretch' },
  '.jm-heat': { backgroundColor: '#e8710a', borderRadius: '1px' },
  '.jm-note': {
    display: 'inline-block',
    overflow: 'hidden',
    textOverflow: 'ellipsis',
    verticalAlign: 'bottom',
    marginLeft: '2.5em',
    color: 'var(--jp-ui-font-color1)',
    opacity: '0.75',
    fontFamily: 'var(--jp-ui-font-family)',
    fontSize: 'var(--jp-ui-font-size1)',
    fontStyle: 'italic',
    whiteSpace: 'pre',
    userSelect: 'none'
  },
  '.jm-stale': { color: WORDS.warning[0], opacity: '1', fontWeight: 'bold' },
  '.cm-tooltip.cm-tooltip-hover, .cm-tooltip.cm-tooltip-lint': {
    backgroundColor: 'var(--jp-layout-color1)',
    color: 'var(--jp-ui-font-color1)',
    border: '1px solid var(--jp-border-color1)',
    borderRadius: '4px',
    boxShadow: 'var(--jp-elevation-z6)',
    overflowY: 'auto',
    zIndex: '100'
  },
  '.cm-tooltip-lint': { maxWidth: 'min(42em, 90vw)', maxHeight: 'min(36em, 75vh)', overflowY: 'auto', margin: '0', padding: '2px 0' },
  '.cm-diagnostic': { padding: '6px 10px', borderLeftWidth: '4px', whiteSpace: 'normal' },
  '.cm-diagnostic + .cm-diagnostic': { borderTop: '1px solid var(--jp-border-color2)' },
  '.cm-diagnosticSource': { display: 'none' },
  '.cm-diagnosticAction': {
    margin: '8px 8px 2px 0',
    padding: '3px 10px',
    fontFamily: 'var(--jp-ui-font-family)',
    fontSize: 'var(--jp-ui-font-size1)',
    backgroundColor: '#1a5fb4',
    color: '#ffffff',
    border: 'none',
    borderRadius: '3px',
    cursor: 'pointer',
    textAlign: 'left'
  },
  '.jm-list': { color: 'var(--jp-ui-font-color0)', maxHeight: '40vh', overflowY: 'auto', fontFamily: 'var(--jp-ui-font-family)' },
  '.jm-list ol': { margin: '0', padding: '0', listStyle: 'none' },
  '.jm-list-head': { display: 'flex', flexDirection: 'row-reverse', padding: '2px 8px' },
  '.cm-panels:has(.jm-list)': { backgroundColor: 'var(--jp-layout-color1)' },
  '.jm-close, .jm-goto': {
    fontFamily: 'var(--jp-ui-font-family)',
    fontSize: 'var(--jp-ui-font-size1)',
    color: 'var(--jp-content-link-color)',
    backgroundColor: 'transparent',
    border: 'none',
    padding: '2px 0',
    textDecoration: 'underline',
    cursor: 'pointer'
  },
  '.cm-diagnosticAction:focus-visible, .jm-close:focus-visible, .jm-goto:focus-visible': { outline: '2px solid var(--jp-brand-color1)', outlineOffset: '2px' },
  '.jm-tip': { fontFamily: 'var(--jp-ui-font-family)', fontSize: 'var(--jp-ui-font-size1)', lineHeight: '1.45' },
  '.jm-tip-message': { fontWeight: '600', margin: '2px 0 4px' },
  '.jm-tip-proof': { opacity: '0.85' },
  '.jm-tip code, .jm-tip-code': {
    fontFamily: 'var(--jp-code-font-family)',
    fontSize: 'var(--jp-code-font-size)',
    backgroundColor: 'rgba(127, 127, 127, 0.15)',
    padding: '0 3px',
    borderRadius: '2px'
  },
  '.jm-tip-row': { marginTop: '6px' },
  '.jm-tip-code': { whiteSpace: 'pre-wrap', padding: '4px 8px', margin: '3px 0', maxHeight: '40vh', overflow: 'auto', lineHeight: '1.35' },
  '.jm-gone': { color: WORDS.error[0] },
  '.jm-come, .jm-fix-word': { color: FIXED[0] },
  '.jm-error-word': { color: WORDS.error[0] },
  '.jm-warning-word': { color: WORDS.warning[0] },
  '.jm-note-word': { color: WORDS.note[0] },
  [`${DARK} .jm-error-word`]: { color: WORDS.error[1] },
  [`${DARK} .jm-warning-word, ${DARK} .jm-stale`]: { color: WORDS.warning[1] },
  [`${DARK} .jm-gone`]: { color: WORDS.error[1] },
  [`${DARK} .jm-come, ${DARK} .jm-fix-word`]: { color: FIXED[1] },
  [`${DARK} .jm-note-word`]: { color: WORDS.note[1] }
});

/** For the whole page: what stands in a report. */
export const PAGE = `
.jm-action {
  margin: 2px 0 2px 8px; padding: 2px 10px; cursor: pointer; border: none; border-radius: 3px;
  font-family: var(--jp-ui-font-family); font-size: var(--jp-ui-font-size1); background-color: #1a5fb4; color: #ffffff;
}
.jm-action:focus-visible, .jm-place:focus-visible { outline: 2px solid var(--jp-brand-color1); outline-offset: 2px; }
.jm-place[role='link'] { color: var(--jp-content-link-color); text-decoration: underline; cursor: pointer; }
.jm-marked { position: relative; }
.jm-marked .jm-source {
  position: absolute; width: 1px; height: 1px; margin: 0 !important; padding: 0 !important; overflow: hidden !important;
  clip-path: inset(50%);
}
.jm-report-note {
  padding: 2px 8px; font-family: var(--jp-ui-font-family); font-size: var(--jp-ui-font-size1); font-style: italic;
  color: var(--jp-ui-font-color1); background-color: var(--jp-layout-color2);
}`;
