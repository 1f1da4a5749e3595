"""The table of orders; and a job of the migration's, since the queue comes first."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes what models.py has."""

    initial = True
    operations = [  # noqa: RUF012, as Django has it
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.AutoField(primary_key=True, serialize=False)),
                ("email", models.TextField()),
                ("receipts", models.IntegerField(default=0)),
            ],
        ),
        migrations.RunSQL("select pgwake.enqueue('stock', delay => '1 day')"),
    ]
