"""Where tasks run. Each backend is found by its entry point (`penstock.backends`); the engine knows only backends.base."""
