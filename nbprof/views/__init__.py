"""What a drawing needs: one module a view, the twin of the module of the same name in js/views."""
