// Bundles lib/ into ../jitmagic/labextension, and leaves there what it was made from.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, '..', 'jitmagic', 'labextension');
const require = createRequire(import.meta.url);

// The same sum is made by tests/test_labextension.py, which tells when the bundle is older than its sources.
function sum() {
  const inside = ['src', 'schema'].flatMap(dir => readdirSync(join(here, dir)).map(name => `${dir}/${name}`));
  const hash = createHash('sha256');
  for (const name of ['build.mjs', 'package-lock.json', 'package.json', 'tsconfig.json', ...inside].sort()) {
    hash.update(`${name}\0${readFileSync(join(here, name), 'utf8').replaceAll('\r\n', '\n')}\0`);
  }
  return hash.digest('hex');
}

const builder = require.resolve('@jupyter/builder/lib/build-labextension.js');
const core = require.resolve('@jupyterlab/core-meta/core.package.json');
execFileSync(process.execPath, [builder, '--core-package-file', core, here], { stdio: 'inherit', cwd: here });

const made = { packageManager: 'python', packageName: 'jitmagic', uninstallInstructions: 'pip uninstall jitmagic' };
writeFileSync(join(out, 'install.json'), `${JSON.stringify(made, null, 2)}\n`);
writeFileSync(join(out, 'sources.sha256'), `${sum()}\n`);
