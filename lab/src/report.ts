/** The report as it lies in a cell's outputs: what `Report.to_dict()` of jitmagic/report.py writes. */

export const MIME_TYPE = 'application/vnd.jitmagic.v1+json';
export const SCHEMA = 1;

export type Severity = 'error' | 'warning' | 'note';

/** Lines count from 1, the magic line included; columns are characters (code points), the end exclusive. */
export interface Span {
  line: number;
  column: number;
  end_line: number;
  end_column: number;
  source: string;
  /** Name of the code object of another cell than the report's own. */
  cell: string | null;
}

export interface Fix {
  title: string;
  applicability: 'safe' | 'unsafe' | 'display';
  verified: boolean;
  evidence: string;
  static_argnames: string[] | null;
  static_argnums: number[] | null;
  dyn: string[] | null;
  /** The whole new magic line. */
  magic: string | null;
  cell: string | null;
  calls: string[] | null;
}

export interface Finding {
  code: string;
  kind: string;
  severity: Severity;
  function: string;
  message: string;
  span: Span | null;
  /** Where it comes to light, if that is elsewhere. */
  shows: Span | null;
  culprits: string[];
  fixes: Fix[];
  help: string;
}

export interface State {
  path: string;
  role: 'constant' | 'dynamic' | 'static';
  type: string;
  shape: number[] | null;
  dtype: string | null;
  lines: number[];
  stale: boolean;
  value: string | null;
}

/** What a line of the report's own cell costs, as counted in the program or measured; 0 where that is not known. */
export interface LineCost {
  line: number;
  equations: number;
  flops: number;
  seconds: number;
}

export interface FunctionReport {
  name: string;
  /** It compiles, and its results are wrong: what it costs is of no interest. */
  wrong: boolean;
  state: State[];
  lines: LineCost[];
  /** Measured; none where the calls are too short. */
  line_times: LineCost[];
}

export interface Report {
  cell: { source: string; id: string | null };
  functions: FunctionReport[];
  findings: Finding[];
}

/** More than a report of ours holds (jitmagic/render/payload.py); a stranger's may hold anything. */
const MOST = { findings: 200, fixes: 20, functions: 60, rows: 1000, characters: 1_000_000 };

type Raw = Record<string, unknown>;

/** The report in a MIME bundle, with only what is well formed in it; null where there is none. */
export function read(bundle: unknown): Report | null {
  const data = record(record(bundle)?.[MIME_TYPE]);
  const cell = record(data?.cell);
  if (!data || !cell || data.schema !== SCHEMA || typeof cell.source !== 'string' || !cell.source) {
    return null;
  }
  return {
    cell: { source: cell.source, id: typeof cell.id === 'string' ? cell.id : null },
    functions: records(data.functions, MOST.functions).map(readFunction),
    findings: records(data.findings, MOST.findings).map(readFinding)
  };
}

function readFunction(raw: Raw): FunctionReport {
  return {
    name: text(raw.name),
    wrong: raw.verdict === 'wrong',
    state: records(raw.state, MOST.rows).map(s => ({
      path: text(s.path),
      role: text(s.role) as State['role'],
      type: text(s.type),
      shape: Array.isArray(s.shape) ? numbers(s.shape) : null,
      dtype: typeof s.dtype === 'string' ? s.dtype : null,
      lines: numbers(s.lines),
      stale: s.stale === true,
      value: typeof s.value === 'string' ? s.value : null
    })),
    lines: readLines(raw.lines),
    line_times: readLines(raw.line_times)
  };
}

function readLines(raw: unknown): LineCost[] {
  const own = records(raw, MOST.rows).filter(row => typeof row.cell !== 'string');
  return own.map(row => ({
    line: number(row.line) ?? 0,
    equations: number(row.equations) ?? 0,
    flops: number(row.flops) ?? 0,
    seconds: number(row.seconds) ?? 0
  }));
}

function readFinding(raw: Raw): Finding {
  return {
    code: text(raw.code),
    kind: text(raw.kind),
    severity: raw.severity === 'error' || raw.severity === 'warning' ? raw.severity : 'note',
    function: text(raw.function),
    message: text(raw.message),
    span: readSpan(record(raw.span)),
    shows: readSpan(record(raw.shows)),
    culprits: strings(raw.culprits) ?? [],
    fixes: records(raw.fixes, MOST.fixes).map(readFix),
    help: text(raw.help)
  };
}

function readSpan(raw: Raw | null): Span | null {
  const line = number(raw?.line);
  if (!raw || line === null) {
    return null;
  }
  return {
    line,
    column: number(raw.column) ?? 0,
    end_line: number(raw.end_line) ?? line,
    end_column: number(raw.end_column) ?? 0,
    source: text(raw.source),
    cell: typeof raw.cell === 'string' ? raw.cell : null
  };
}

function readFix(raw: Raw): Fix {
  return {
    title: text(raw.title),
    applicability: raw.applicability === 'safe' || raw.applicability === 'unsafe' ? raw.applicability : 'display',
    verified: raw.verified === true,
    evidence: text(raw.evidence),
    static_argnames: strings(raw.static_argnames),
    static_argnums: Array.isArray(raw.static_argnums) ? numbers(raw.static_argnums) : null,
    dyn: strings(raw.dyn),
    magic: typeof raw.magic === 'string' ? raw.magic : null,
    cell: typeof raw.cell === 'string' ? raw.cell : null,
    calls: strings(raw.calls)
  };
}

function record(value: unknown): Raw | null {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? (value as Raw) : null;
}

function records(value: unknown, most: number): Raw[] {
  return Array.isArray(value) ? value.slice(0, most).map(record).filter((v): v is Raw => v !== null) : [];
}

function strings(value: unknown): string[] | null {
  return Array.isArray(value) ? value.slice(0, MOST.rows).filter((v): v is string => typeof v === 'string') : null;
}

function numbers(value: unknown): number[] {
  return Array.isArray(value) ? value.slice(0, MOST.rows).filter((v): v is number => typeof v === 'number') : [];
}

function number(value: unknown): number | null {
  return typeof value === 'number' && isFinite(value) ? value : null;
}

function text(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, MOST.characters) : '';
}
