"""The gates that no ready-made command covers: workflows with JSONata, and the template as CloudFormation will see it."""
