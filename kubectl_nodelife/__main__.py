"""`python -m kubectl_nodelife`: the same as the console script."""

from kubectl_nodelife.quick import main

raise SystemExit(main())
